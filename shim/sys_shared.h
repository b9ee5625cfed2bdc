/* Files that processes share: opening, sizing, locking and mapping them. Apart from these only region.c needs the time,
 * the process id and a pause.
 *
 * The locks are those of an open file description. The kernel keeps one as long as anything refers to the description,
 * and a mapping does: a lock taken before mapping lasts exactly as long as the process' memory, whatever happens to the
 * process and in whichever PID namespace it is. */
#ifndef AMVGPU_SYS_SHARED_H
#define AMVGPU_SYS_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_identity {
	uint64_t device;
	uint64_t inode;
	uint64_t size;
	bool is_regular;
};

/* Opens for reading and writing and creates it if need be, for all users. A negative errno on failure. */
long shared_open(const char *path, bool create);
/* Did that fail because this process, or the whole system, has as many files open as it may? */
bool shared_lacks_descriptor(long error);
/* Of the open file, or with -1 of the path. */
bool shared_identity(int fd, const char *path, struct file_identity *identity);
long shared_read(int fd, void *buffer, size_t size);
long shared_write(int fd, const void *buffer, size_t size);
/* Empties the file and gives it real, zeroed blocks: later writes through a mapping cannot run out of space. */
long shared_refill(int fd, size_t size);
/* Mapped; with `forks` only for this process and not for its children. NULL on failure. */
void *shared_map(int fd, size_t size, bool forks);
/* Is this memory, as sys_map_wiped_on_fork made it, really wiped? */
bool shared_wipes_on_fork(void *memory, size_t size);

enum shared_lock { LOCK_NONE, LOCK_SHARED, LOCK_ALONE };
/* Never waits; a negative errno when another one is in the way. */
long shared_lock(int fd, enum shared_lock kind, uint64_t first, uint64_t count);
/* Does anybody but this open file hold a lock there? Also true when that cannot be told. */
bool shared_is_locked(int fd, uint64_t at);

uint32_t shared_process_id(void);
uint64_t shared_milliseconds(void);
void shared_yield(void);
void shared_pause(void);

#endif
