/* Raw system calls, memory and text helpers, and the lock: see sys.h. */
#include "sys.h"

#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/futex.h>
#include <linux/mman.h>

#include "arch.h"

enum { SPINS_BEFORE_SLEEP = 100 };

static long call3(long number, long a, long b, long c)
{
	return arch_syscall6(number, a, b, c, 0, 0, 0);
}

long sys_open_for_reading(const char *path)
{
	return arch_syscall6(__NR_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

long sys_read(int fd, void *buffer, size_t size)
{
	return call3(__NR_read, fd, (long)buffer, (long)size);
}

long sys_write(int fd, const void *buffer, size_t size)
{
	return call3(__NR_write, fd, (long)buffer, (long)size);
}

void sys_close(int fd)
{
	call3(__NR_close, fd, 0, 0);
}

long sys_mprotect(void *address, size_t size, int protection)
{
	return call3(__NR_mprotect, (long)address, (long)size, protection);
}

void sys_munmap(void *address, size_t size)
{
	call3(__NR_munmap, (long)address, (long)size, 0);
}

void *sys_map(size_t size)
{
	long result = arch_syscall6(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return result < 0 && result > -4096 ? NULL : (void *)result;
}

void *sys_map_wiped_on_fork(size_t size)
{
	void *memory = sys_map(size);

	if (memory)
		call3(__NR_madvise, (long)memory, (long)size, MADV_WIPEONFORK);
	return memory;
}

/* The compiler may call these two by itself, so they keep their names; they stay invisible outside of the library. */
void *memcpy(void *to, const void *from, size_t size)
{
	unsigned char *target = to;
	const unsigned char *source = from;

	while (size--)
		*target++ = *source++;
	return to;
}

void *memset(void *to, int byte, size_t size)
{
	unsigned char *target = to;

	while (size--)
		*target++ = (unsigned char)byte;
	return to;
}

size_t text_length(const char *text)
{
	size_t length = 0;

	while (text[length])
		length++;
	return length;
}

bool text_equal(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

bool text_starts_with(const char *text, const char *prefix)
{
	while (*prefix && *text == *prefix) {
		text++;
		prefix++;
	}
	return *prefix == '\0';
}

static bool take_if_free(struct lock *lock)
{
	uint32_t expected = 0;

	return __atomic_compare_exchange_n(&lock->state, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void lock_acquire(struct lock *lock)
{
	for (int spin = 0; spin < SPINS_BEFORE_SLEEP; spin++) {
		if (take_if_free(lock))
			return;
		arch_spin_hint();
	}
	while (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) != 0)
		arch_syscall6(__NR_futex, (long)&lock->state, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

void lock_release(struct lock *lock)
{
	if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
		arch_syscall6(__NR_futex, (long)&lock->state, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}
