/* The replacements, and how they get into place: see exec_hooks.h. */
#include "exec_hooks.h"

#include <linux/fcntl.h>
#include <stdarg.h>

#include "environ.h"
#include "exec_start.h"
#include "log.h"
#include "sys.h"

/* The tests build the library without them, to see what is lost then. */
#ifndef EXEC_HOOKS
#define EXEC_HOOKS 1
#endif

static struct elf_image program;
static struct elf_image libc;
static bool program_is_known;
static bool main_has_begun;

static int start_at(const char *path, char *const argv[], char *const envp[])
{
	return exec_run(&(struct exec_start){.function = BY_EXECVE, .folder = AT_FDCWD, .path = path, .argv = argv}, envp);
}

static int start_by_name(const char *name, char *const argv[], char *const envp[])
{
	return exec_run(&(struct exec_start){.function = BY_EXECVPE, .by_name = true, .path = name, .argv = argv}, envp);
}

static int hook_execve(const char *path, char *const argv[], char *const envp[])
{
	return start_at(path, argv, envp);
}

static int hook_execv(const char *path, char *const argv[])
{
	return start_at(path, argv, exec_environment());
}

static int hook_execvpe(const char *name, char *const argv[], char *const envp[])
{
	return start_by_name(name, argv, envp);
}

static int hook_execvp(const char *name, char *const argv[])
{
	return start_by_name(name, argv, exec_environment());
}

static int hook_fexecve(int fd, char *const argv[], char *const envp[])
{
	return exec_run(&(struct exec_start){.function = BY_FEXECVE, .folder = fd, .path = "", .argv = argv,
					     .flags = AT_EMPTY_PATH}, envp);
}

static int hook_execveat(int folder, const char *path, char *const argv[], char *const envp[], int flags)
{
	return exec_run(&(struct exec_start){.function = BY_EXECVEAT, .folder = folder, .path = path, .argv = argv,
					     .flags = flags}, envp);
}

static size_t count_words(const char *first, va_list *words)
{
	va_list copy;
	size_t count = 1;

	va_copy(copy, *words);
	for (const char *word = first; word; word = va_arg(copy, const char *))
		count++;
	va_end(copy);
	return count;
}

/* With the NULL, after which execle has its environment. */
static void take_words(const char *first, va_list *words, char **argv)
{
	const char *word = first;

	while ((*argv++ = (char *)word))
		word = va_arg(*words, const char *);
}

/* The words of a call, from `first` on, as an array on the stack of the caller. */
#define WORDS_TO_ARGV(first, words, argv)               \
	va_start(words, first);                         \
	char *argv[count_words(first, &words)];         \
	take_words(first, &words, argv)

static int hook_execl(const char *path, const char *first, ...)
{
	va_list words;

	WORDS_TO_ARGV(first, words, argv);
	va_end(words);
	return start_at(path, argv, exec_environment());
}

static int hook_execlp(const char *name, const char *first, ...)
{
	va_list words;

	WORDS_TO_ARGV(first, words, argv);
	va_end(words);
	return start_by_name(name, argv, exec_environment());
}

static int hook_execle(const char *path, const char *first, ...)
{
	char *const *envp;
	va_list words;

	WORDS_TO_ARGV(first, words, argv);
	envp = va_arg(words, char *const *);
	va_end(words);
	return start_at(path, argv, envp);
}

#define SPAWN_HOOK(hook, real, along_path)                                                                          \
	static int hook(int *pid, const char *path, const void *actions, const void *attributes, char *const argv[], \
			char *const envp[])                                                                          \
	{                                                                                                            \
		return exec_run(&(struct exec_start){.function = BY_SPAWN, .spawn = (real), .by_name = (along_path), \
						     .folder = AT_FDCWD, .path = path, .argv = argv, .pid = pid,     \
						     .actions = actions, .attributes = attributes}, envp);           \
	}
SPAWN_HOOK(hook_posix_spawn_0, exec_real.posix_spawn[0], false)
SPAWN_HOOK(hook_posix_spawn_1, exec_real.posix_spawn[1], false)
SPAWN_HOOK(hook_posix_spawnp_0, exec_real.posix_spawnp[0], true)
SPAWN_HOOK(hook_posix_spawnp_1, exec_real.posix_spawnp[1], true)
SPAWN_HOOK(hook_pidfd_spawn, exec_real.pidfd_spawn, false)
SPAWN_HOOK(hook_pidfd_spawnp, exec_real.pidfd_spawnp, true)

static void *real_system(const char *command, const void *result)
{
	*(int *)result = exec_real.system(command);
	return NULL;
}

static int hook_system(const char *command)
{
	int result = 0;

	exec_run_shell(command, real_system, &result);
	return result;
}

static void *real_popen(const char *command, const void *mode)
{
	return exec_real.popen(command, mode);
}

static void *hook_popen(const char *command, const char *mode)
{
	return exec_run_shell(command, real_popen, mode);
}

/* Constructors of libraries read the environment before exec_before_main can change it. */
static char *regained(const char *name)
{
	char prefix[64];
	size_t length = text_length(name);

	if (__atomic_load_n(&main_has_begun, __ATOMIC_RELAXED) || length + 2 > sizeof(prefix))
		return NULL;
	memcpy(prefix, name, length);
	memcpy(prefix + length, "=", 2);
	return (char *)environ_regained(prefix);
}

static char *hook_getenv(const char *name)
{
	char *value = exec_real.getenv(name);

	return value ? value : regained(name);
}

static char *hook_secure_getenv(const char *name)
{
	char *value = exec_real.secure_getenv(name);

	return value ? value : regained(name);
}

/* One row per function; where two symbols of a name lie at two places, the second one gets the second row. */
struct replacement {
	const char *name;
	const void *hook;
	void *real; /* a pointer to a function, to be filled in; NULL when the hook calls another one */
	bool only_if_lost; /* needed only in a process that lost something itself */
};
#define REPLACE(name) {#name, (const void *)hook_##name, &exec_real.name, false}
#define REPLACE_VERSION(name, index) \
	{#name, (const void *)hook_##name##_##index, &exec_real.name[index], false}
static const struct replacement replacements[] = {
	REPLACE(execve),
	{"execv", (const void *)hook_execv, NULL, false},
	REPLACE(execvpe),
	{"execvp", (const void *)hook_execvp, NULL, false},
	{"execl", (const void *)hook_execl, NULL, false},
	{"execlp", (const void *)hook_execlp, NULL, false},
	{"execle", (const void *)hook_execle, NULL, false},
	REPLACE(fexecve),
	REPLACE(execveat),
	REPLACE_VERSION(posix_spawn, 0),
	REPLACE_VERSION(posix_spawn, 1),
	REPLACE_VERSION(posix_spawnp, 0),
	REPLACE_VERSION(posix_spawnp, 1),
	REPLACE(pidfd_spawn),
	REPLACE(pidfd_spawnp),
	REPLACE(system),
	REPLACE(popen),
	{"_IO_popen", (const void *)hook_popen, NULL, false},
	{"__libc_system", (const void *)hook_system, NULL, false}, /* what libpthread's `system` calls before glibc 2.34 */
	{"getenv", (const void *)hook_getenv, &exec_real.getenv, true},
	{"secure_getenv", (const void *)hook_secure_getenv, &exec_real.secure_getenv, true},
};

/* The C library has 3,000 functions, and every process pays for looking at them: nearly all end here. */
static bool may_be_replaced(const char *name)
{
	char third = name[0] && name[1] ? name[2] : '\0';

	switch (name[0]) {
	case 'e': /* exec... */
		return third == 'e';
	case 'f': /* fexecve */
		return third == 'x';
	case 'g': /* getenv */
		return third == 't';
	case 'p': /* popen, posix_spawn, pidfd_spawn */
		return third == 'p' || third == 's' || third == 'd';
	case 's': /* system, secure_getenv */
		return third == 's' || third == 'c';
	case '_': /* _IO_popen, __libc_system */
		return third == 'O' || third == 'l';
	default:
		return false;
	}
}

static const void *choose(void *context, const char *name, const void *real)
{
	const bool *lost = context;

	if (!may_be_replaced(name))
		return NULL;
	for (size_t i = 0; i < sizeof(replacements) / sizeof(replacements[0]); i++) {
		const struct replacement *row = &replacements[i];
		const void *known;

		if (!text_equal(name, row->name))
			continue;
		if (row->only_if_lost && !*lost)
			return NULL;
		if (!row->real)
			return row->hook;
		memcpy(&known, row->real, sizeof(known));
		if (known && known != real)
			continue;
		memcpy(row->real, &real, sizeof(real));
		return row->hook;
	}
	return NULL;
}

void exec_note_program(const struct link_map *map)
{
	program_is_known = elf_open(map, &program);
}

bool exec_is_libc(const struct link_map *map, struct elf_image *image)
{
	const char *base = map->l_name;

	for (const char *c = map->l_name; *c; c++) {
		if (*c == '/')
			base = c + 1;
	}
	return (text_equal(base, "libc.so.6") || text_starts_with(base, "libc-2.")) && elf_open(map, image);
}

/* A program that names `environ` may have it in its own data (a copy relocation), and the C library uses that one.
 * Looked for at the first start of a program, for most processes start none. */
static char ***find_environment(void)
{
	const void *found = program_is_known ? elf_object(&program, "environ") : NULL;

	if (!found && program_is_known)
		found = elf_object(&program, "__environ");
	return (char ***)(found ? found : elf_object(&libc, "environ"));
}

void exec_attach(const struct elf_image *image)
{
	bool lost = environ_regain(NULL);

	if (!EXEC_HOOKS || exec_real.execve)
		return;
	libc = *image;
	exec_real.find_environment = find_environment;
	if (lost)
		exec_real.setenv = (int (*)(const char *, const char *, int))elf_function(image, "setenv");
	if (!elf_redirect(image, choose, &lost))
		LOG_AT(LOG_INFO, LOG_TEXT("programs started from here do not get their variables back"));
}

void exec_before_main(void)
{
	if (exec_real.setenv)
		environ_regain(exec_real.setenv);
	__atomic_store_n(&main_has_begun, true, __ATOMIC_RELAXED);
}
