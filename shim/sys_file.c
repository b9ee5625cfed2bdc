/* See sys_file.h. */
#include "sys_file.h"

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/stat.h>

#include "arch.h"
#include "sys.h"

enum { MAY_EXECUTE = 1 };

bool sys_file_kind(int folder, const char *path, int flags, struct file_kind *kind)
{
	struct stat found;

	if (arch_syscall6(__NR_newfstatat, folder, (long)path, (long)&found, flags, 0, 0) < 0)
		return false;
	*kind = (struct file_kind){
		.is_regular = S_ISREG(found.st_mode),
		.is_setuid = found.st_mode & S_ISUID,
		/* Without the group's execute bit it is an old mark for locking. */
		.is_setgid = (found.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP),
		.owner = found.st_uid,
		.group = found.st_gid,
	};
	return true;
}

bool sys_may_execute(const char *path)
{
	return arch_syscall6(__NR_faccessat, AT_FDCWD, (long)path, MAY_EXECUTE, 0, 0, 0) == 0;
}

long sys_open_at(int folder, const char *path)
{
	return arch_syscall6(__NR_openat, folder, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

long sys_read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
	return arch_syscall6(__NR_pread64, fd, (long)buffer, (long)size, (long)offset, 0, 0);
}

uint32_t sys_real_user(void)
{
	return (uint32_t)arch_syscall6(__NR_getuid, 0, 0, 0, 0, 0, 0);
}

uint32_t sys_real_group(void)
{
	return (uint32_t)arch_syscall6(__NR_getgid, 0, 0, 0, 0, 0, 0);
}
