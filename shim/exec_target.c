/* See exec_target.h. */
#include "exec_target.h"

#include <elf.h>
#include <linux/fcntl.h>
#include <link.h>

#include "sys.h"
#include "sys_file.h"

/* The kernel reads that much of a script's first line, and follows at most that many interpreters. */
enum { START_SIZE = 256, MAX_SCRIPTS = 5, PATH_SIZE = 4096 };

static const char default_path[] = "/bin:/usr/bin";

static bool changes_user(const struct file_kind *kind)
{
	return (kind->is_setuid && kind->owner != sys_real_user()) || (kind->is_setgid && kind->group != sys_real_group());
}

static bool is_elf(const char *start, long size)
{
	return size >= (long)sizeof(ElfW(Ehdr)) && start[0] == ELFMAG0 && start[1] == ELFMAG1 && start[2] == ELFMAG2 &&
	       start[3] == ELFMAG3 && start[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32);
}

/* A program without an interpreter; a loader started as a program has none either, but loads the libraries itself. */
static bool is_static(int fd, const ElfW(Ehdr) *header)
{
	ElfW(Phdr) segment;

	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return false;
	for (unsigned i = 0; i < header->e_phnum; i++) {
		uint64_t offset = header->e_phoff + (uint64_t)i * header->e_phentsize;

		if (sys_read_at(fd, &segment, sizeof(segment), offset) != (long)sizeof(segment) ||
		    segment.p_type == PT_INTERP)
			return false;
	}
	return true;
}

static bool is_loader(const char *path)
{
	static const char stem[] = "ld-linux";

	for (; *path; path++) {
		if (text_starts_with(path, stem))
			return true;
	}
	return false;
}

/* The interpreter that the first line of a script names, in place; NULL when there is none. */
static char *interpreter(char *start, long size)
{
	char *name = start + 2;
	char *end;

	if (size < 2 || start[0] != '#' || start[1] != '!')
		return NULL;
	start[size] = '\0';
	while (*name == ' ' || *name == '\t')
		name++;
	for (end = name; *end && *end != ' ' && *end != '\t' && *end != '\n'; end++)
		;
	*end = '\0';
	return *name ? name : NULL;
}

/* Opening what is no regular file could block or have effects, so its kind is looked at first. */
static enum exec_target look(int folder, const char *path, int flags, char *start, long *size)
{
	enum exec_target target;
	struct file_kind kind;
	bool by_fd = (flags & AT_EMPTY_PATH) && !*path;
	long fd;

	*size = 0;
	if (!sys_file_kind(folder, path, flags, &kind) || !kind.is_regular)
		return TARGET_ORDINARY;
	target = changes_user(&kind) ? TARGET_PRIVILEGED : TARGET_ORDINARY;
	fd = by_fd ? folder : sys_open_at(folder, path);
	if (fd < 0)
		return target;
	*size = sys_read_at((int)fd, start, START_SIZE, 0);
	if (target == TARGET_ORDINARY && is_elf(start, *size) && !is_loader(path) &&
	    is_static((int)fd, (const ElfW(Ehdr) *)start))
		target = TARGET_STATIC;
	if (!by_fd)
		sys_close((int)fd);
	return target;
}

enum exec_target exec_target(int folder, const char *path, int flags)
{
	char start[START_SIZE + 1] __attribute__((aligned(8)));
	char script[START_SIZE + 1];
	enum exec_target target = TARGET_ORDINARY;
	long size;

	flags &= AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
	for (int i = 0; i < MAX_SCRIPTS && path; i++) {
		/* Set-user-id means nothing for a script, but its interpreter may have it. */
		target = look(folder, path, flags, start, &size);
		path = interpreter(start, size);
		if (path)
			path = memcpy(script, path, text_length(path) + 1);
		folder = AT_FDCWD;
		flags = 0;
	}
	return target;
}

static const char *search_path(char *const environment[])
{
	for (; environment && *environment; environment++) {
		if (text_starts_with(*environment, "PATH="))
			return *environment + 5;
	}
	return default_path;
}

static bool is_program(const char *path)
{
	struct file_kind kind;

	return sys_file_kind(AT_FDCWD, path, 0, &kind) && kind.is_regular && sys_may_execute(path);
}

enum exec_target exec_target_by_name(const char *name, char *const environment[])
{
	char path[PATH_SIZE];
	size_t name_length = text_length(name);
	const char *folder = search_path(environment);

	for (const char *c = name; *c; c++) {
		if (*c == '/')
			return exec_target(AT_FDCWD, name, 0);
	}
	while (name_length) {
		size_t length = 0;

		while (folder[length] && folder[length] != ':')
			length++;
		if (length + name_length + 2 <= PATH_SIZE) {
			memcpy(path, folder, length);
			path[length] = '/';
			memcpy(path + length + (length != 0), name, name_length + 1); /* an empty entry is "." */
			if (is_program(path))
				return exec_target(AT_FDCWD, path, 0);
		}
		if (!folder[length])
			break;
		folder += length + 1;
	}
	return TARGET_ORDINARY;
}
