/* Looking at files: the system calls that only exec_target.c needs, apart from those of sys.h. */
#ifndef AMVGPU_SYS_FILE_H
#define AMVGPU_SYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_kind {
	bool is_regular;
	bool is_setuid;
	bool is_setgid;
	uint32_t owner;
	uint32_t group;
};

/* `flags` as in execveat. */
bool sys_file_kind(int folder, const char *path, int flags, struct file_kind *kind);
bool sys_may_execute(const char *path);
/* These two return what the kernel returns: a negative errno on failure. */
long sys_read_at(int fd, void *buffer, size_t size, uint64_t offset);
long sys_open_at(int folder, const char *path);
uint32_t sys_real_user(void);
uint32_t sys_real_group(void);

#endif
