/* The few services of an operating system that the library needs, without a C library.
 *
 * An audit library lives in a link-map namespace of its own. Linked with libc it would bring a second libc into every
 * process, with its own malloc, environ and errno, and it would load only on systems with the same or a newer glibc.
 * Freestanding, one binary loads everywhere. */
#ifndef AMVGPU_SYS_H
#define AMVGPU_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of these return what the kernel returns: a negative errno on failure. */
long sys_open_for_reading(const char *path);
long sys_read(int fd, void *buffer, size_t size);
long sys_write(int fd, const void *buffer, size_t size);
void sys_close(int fd);
long sys_mprotect(void *address, size_t size, int protection);
void sys_munmap(void *address, size_t size);

/* Zeroed private memory, or NULL. */
void *sys_map(size_t size);
/* The same, but a forked child finds it zeroed again: it starts without its parent's books, locks and marks.
 * On kernels before 4.14 the child inherits a copy, and so counts its parent's memory as its own: too much, never
 * too little. */
void *sys_map_wiped_on_fork(size_t size);

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
size_t text_length(const char *text);
bool text_equal(const char *a, const char *b);
bool text_starts_with(const char *text, const char *prefix);

/* A lock that is free when it is zero; it spins briefly and then sleeps. */
struct lock {
	uint32_t state; /* 0 free, 1 held, 2 held and somebody sleeps */
};
void lock_acquire(struct lock *lock);
void lock_release(struct lock *lock);

#endif
