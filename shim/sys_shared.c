/* See sys_shared.h. */
#include "sys_shared.h"

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/time.h>

#include "arch.h"
#include "sys.h"

enum { MODE_OF_ALL = 0666, TYPE_OF_FILE = 0170000, REGULAR_FILE = 0100000 };
enum { PAUSE_NANOSECONDS = 1000000, NO_SUCH_FILE = -2, FILE_EXISTS = -17, TOO_MANY_OF_ALL = -23, TOO_MANY = -24,
       NOT_SUPPORTED = -95 };

static long call(long number, long a, long b, long c, long d)
{
	return arch_syscall6(number, a, b, c, d, 0, 0);
}

/* First without O_CREAT: in a folder like /dev/shm the kernel refuses it for files of other users, even existing ones.
 * The mode is set afterwards because the umask has cut it. */
long shared_open(const char *path, bool create)
{
	const long flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	long fd = call(__NR_openat, AT_FDCWD, (long)path, flags, 0);

	if (fd != NO_SUCH_FILE || !create)
		return fd;
	fd = call(__NR_openat, AT_FDCWD, (long)path, flags | O_CREAT | O_EXCL, MODE_OF_ALL);
	if (fd >= 0)
		call(__NR_fchmod, fd, MODE_OF_ALL, 0, 0);
	return fd == FILE_EXISTS ? call(__NR_openat, AT_FDCWD, (long)path, flags, 0) : fd;
}

bool shared_lacks_descriptor(long error)
{
	return error == TOO_MANY || error == TOO_MANY_OF_ALL;
}

bool shared_identity(int fd, const char *path, struct file_identity *identity)
{
	struct stat found;

	if (call(__NR_newfstatat, fd < 0 ? AT_FDCWD : fd, (long)path, (long)&found, *path ? 0 : AT_EMPTY_PATH) < 0)
		return false;
	*identity = (struct file_identity){found.st_dev, found.st_ino, (uint64_t)found.st_size,
					   (found.st_mode & TYPE_OF_FILE) == REGULAR_FILE};
	return true;
}

long shared_read(int fd, void *buffer, size_t size)
{
	return call(__NR_pread64, fd, (long)buffer, (long)size, 0);
}

long shared_write(int fd, const void *buffer, size_t size)
{
	return call(__NR_pwrite64, fd, (long)buffer, (long)size, 0);
}

long shared_refill(int fd, size_t size)
{
	static const char zeroes[512];
	long code = call(__NR_ftruncate, fd, 0, 0, 0);

	if (code == 0)
		code = call(__NR_fallocate, fd, 0, 0, (long)size);
	if (code != NOT_SUPPORTED)
		return code;
	for (size_t at = 0; at < size; at += sizeof(zeroes)) {
		code = call(__NR_pwrite64, fd, (long)zeroes, sizeof(zeroes), (long)at);
		if (code != (long)sizeof(zeroes))
			return code < 0 ? code : -1;
	}
	return call(__NR_ftruncate, fd, (long)size, 0, 0);
}

void *shared_map(int fd, size_t size, bool forks)
{
	long result = arch_syscall6(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (result < 0 && result > -4096)
		return NULL;
	if (forks)
		call(__NR_madvise, result, (long)size, MADV_DONTFORK, 0);
	return (void *)result;
}

bool shared_wipes_on_fork(void *memory, size_t size)
{
	return call(__NR_madvise, (long)memory, (long)size, MADV_WIPEONFORK, 0) == 0;
}

static long lock_call(int fd, long command, struct flock *lock)
{
	return call(__NR_fcntl, fd, command, (long)lock, 0);
}

long shared_lock(int fd, enum shared_lock kind, uint64_t first, uint64_t count)
{
	static const short types[] = {[LOCK_NONE] = F_UNLCK, [LOCK_SHARED] = F_RDLCK, [LOCK_ALONE] = F_WRLCK};
	struct flock lock = {.l_type = types[kind], .l_start = (long)first, .l_len = (long)count};

	return lock_call(fd, F_OFD_SETLK, &lock);
}

bool shared_is_locked(int fd, uint64_t at)
{
	struct flock lock = {.l_type = F_WRLCK, .l_start = (long)at, .l_len = 1};

	return lock_call(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

uint32_t shared_process_id(void)
{
	return (uint32_t)call(__NR_getpid, 0, 0, 0, 0);
}

uint64_t shared_milliseconds(void)
{
	long time[2] = {0, 0}; /* seconds and nanoseconds */

	call(__NR_clock_gettime, CLOCK_MONOTONIC_COARSE, (long)time, 0, 0);
	return (uint64_t)time[0] * 1000 + (uint64_t)time[1] / 1000000;
}

void shared_yield(void)
{
	call(__NR_sched_yield, 0, 0, 0, 0);
}

void shared_pause(void)
{
	long time[2] = {0, PAUSE_NANOSECONDS};

	call(__NR_nanosleep, (long)time, 0, 0, 0);
}
