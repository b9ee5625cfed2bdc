/* Starts a program in an environment that holds next to nothing: starts <way> <program> [<word>...].
 *
 * Ways that take an environment give KEPT=1; the others empty their own first, but for KEPT and PATH. When the start
 * fails, the ways that return say so as JSON. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 20000, SMALL_STACK = 65536, COMMAND_SIZE = 4096 };

extern char **environ;

static char *kept[] = {"KEPT=1", NULL};
static char **words; /* of the program, as argv */
static const char *path;

typedef int (*spawner)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
		       char *const[], char *const[]);

static int wait_for(pid_t child)
{
	int status = 0;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int tell(int returned, int error)
{
	printf("{\"returned\":%d,\"error\":\"%s\"}\n", returned, error ? strerror(error) : "");
	return 0;
}

static void empty_environment(void)
{
	char *search = strdup(getenv("PATH"));

	clearenv();
	setenv("KEPT", "1", 1);
	setenv("PATH", search, 1);
}

static int spawn_with(spawner spawn, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes)
{
	pid_t child = -1;
	int code = spawn(&child, path, actions, attributes, words, kept);

	return code ? tell(code, code) : wait_for(child);
}

/* These give a descriptor of the child instead of its number. */
static int spawn_by_descriptor(const char *name)
{
	spawner spawn = (spawner)dlsym(RTLD_DEFAULT, name);
	siginfo_t info;
	int child = -1;
	int code = spawn ? spawn(&child, path, NULL, NULL, words, kept) : 0;

	if (!spawn)
		return 77;
	if (code)
		return tell(code, code);
	return waitid(3 /* P_PIDFD */, (id_t)child, &info, WEXITED) == 0 ? info.si_status : 1;
}

static int spawn_symbol(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);

	return found ? spawn_with((spawner)found, NULL, NULL) : 77;
}

static int spawn_with_extras(void)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t blocked;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, 2, 1);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setpgroup(&attributes, 0);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	posix_spawnattr_setsigmask(&attributes, &blocked);
	return spawn_with(posix_spawn, &actions, &attributes);
}

static int vforked(void)
{
	volatile int error = 0;
	pid_t child = vfork();

	if (child == 0) {
		execve(path, words, kept);
		error = errno;
		_exit(1);
	}
	return error ? tell(-1, error) : wait_for(child);
}

/* As servers do it that leave their workers to init; the pipe's end tells when the worker has ended. */
static int twice_forked(void)
{
	int ends[2];
	char byte;
	pid_t child;

	if (pipe(ends) != 0)
		return 1;
	child = fork();
	if (child == 0) {
		close(ends[0]);
		setsid();
		if (fork() == 0) {
			execve(path, words, kept);
			_exit(1);
		}
		_exit(0);
	}
	close(ends[1]);
	wait_for(child);
	return read(ends[0], &byte, 1) != 0;
}

static void *many_entries(void *unused)
{
	char **entries = calloc(MANY + 1, sizeof(*entries));
	pid_t child;

	for (int i = 0; i < MANY; i++) {
		entries[i] = malloc(16);
		snprintf(entries[i], 16, "V%d=", i);
	}
	child = fork();
	if (child == 0) {
		execve(path, words, entries);
		_exit(tell(-1, errno) + 1);
	}
	exit(wait_for(child));
	return unused;
}

static int many_on_small_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, SMALL_STACK);
	pthread_create(&thread, &attributes, many_entries, NULL);
	pthread_join(thread, NULL);
	return 1;
}

/* A system call made by hand keeps what the library needs, and nothing else. */
static int by_hand(void)
{
	char audit[COMMAND_SIZE];
	char *only[] = {audit, "KEPT=1", NULL};
	pid_t child = fork();

	snprintf(audit, sizeof(audit), "LD_AUDIT=%s", getenv("LD_AUDIT"));
	if (child == 0) {
		syscall(SYS_execve, path, words, only);
		_exit(1);
	}
	return wait_for(child);
}

static int by_shell(int with_popen)
{
	char command[COMMAND_SIZE] = "";
	int byte;
	FILE *output;

	for (char **word = words; *word; word++)
		snprintf(command + strlen(command), sizeof(command) - strlen(command), "%s ", *word);
	empty_environment();
	if (!with_popen)
		return WEXITSTATUS(system(command));
	output = popen(command, "r");
	while ((byte = getc(output)) != EOF)
		putchar(byte);
	return WEXITSTATUS(pclose(output));
}

static int by_exec(const char *way)
{
	char *one = words[0] ? words[1] : NULL;
	int takes_environment = strcmp(way, "execve") == 0 || strcmp(way, "execvpe") == 0 || strcmp(way, "execle") == 0;

	if (!takes_environment)
		empty_environment();
	if (strcmp(way, "execve") == 0)
		execve(path, words, kept);
	else if (strcmp(way, "execv") == 0)
		execv(path, words);
	else if (strcmp(way, "execvp") == 0)
		execvp(path, words);
	else if (strcmp(way, "execvpe") == 0)
		execvpe(path, words, kept);
	else if (strcmp(way, "execl") == 0)
		execl(path, words[0], one, (char *)NULL);
	else if (strcmp(way, "execlp") == 0)
		execlp(path, words[0], one, (char *)NULL);
	else if (strcmp(way, "execle") == 0)
		execle(path, words[0], one, (char *)NULL, kept);
	return tell(-1, errno);
}

static int by_descriptor(const char *way)
{
	int (*at)(int, const char *, char *const[], char *const[], int) = dlsym(RTLD_DEFAULT, "execveat");
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (strcmp(way, "fexecve") == 0)
		fexecve(fd, words, kept);
	else if (!at)
		return 77;
	else if (strcmp(way, "execveat") == 0)
		at(AT_FDCWD, path, words, kept, 0);
	else
		at(fd, "", words, kept, 0x1000 /* AT_EMPTY_PATH */);
	return tell(-1, errno);
}

static int other_way(const char *way)
{
	char *none[] = {NULL};

	if (strcmp(way, "vfork") == 0)
		return vforked();
	if (strcmp(way, "double-fork") == 0)
		return twice_forked();
	if (strcmp(way, "many") == 0)
		return many_on_small_stack();
	if (strcmp(way, "by-hand") == 0)
		return by_hand();
	if (strcmp(way, "system") == 0 || strcmp(way, "popen") == 0)
		return by_shell(*way == 'p');
	if (strcmp(way, "no-environment") == 0)
		return tell(execve(path, words, NULL), errno);
	if (strcmp(way, "no-words") == 0)
		return tell(execve(path, none, kept), errno);
	if (strcmp(way, "twice") == 0) {
		spawn_with(posix_spawn, NULL, NULL);
		return spawn_with(posix_spawn, NULL, NULL);
	}
	return 2;
}

int main(int argc, char **argv)
{
	const char *way = argv[1];

	if (argc < 3)
		return 2;
	path = argv[2];
	words = argv + 2;
	if (strcmp(way, "posix_spawn") == 0)
		return spawn_with(posix_spawn, NULL, NULL);
	if (strcmp(way, "posix_spawnp") == 0)
		return spawn_with(posix_spawnp, NULL, NULL);
	if (strcmp(way, "posix_spawn-old") == 0)
		return spawn_symbol("posix_spawn", "GLIBC_2.2.5");
	if (strcmp(way, "posix_spawnp-old") == 0)
		return spawn_symbol("posix_spawnp", "GLIBC_2.2.5");
	if (strncmp(way, "pidfd_spawn", 11) == 0)
		return spawn_by_descriptor(way);
	if (strcmp(way, "posix_spawn-extras") == 0)
		return spawn_with_extras();
	if (strncmp(way, "fexecve", 7) == 0 || strncmp(way, "execveat", 8) == 0)
		return by_descriptor(way);
	if (strncmp(way, "exec", 4) == 0)
		return by_exec(way);
	return other_way(way);
}
