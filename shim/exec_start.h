/* One start of a program by one function of the C library, with its environment completed on the way. */
#ifndef AMVGPU_EXEC_START_H
#define AMVGPU_EXEC_START_H

#include <stdbool.h>
#include <stddef.h>

#include "exec_target.h"

/* posix_spawn and posix_spawnp have two versions on x86-64; the older ones also run scripts without a first line. */
enum { SPAWN_VERSIONS = 2 };

typedef int (*spawn_function)(int *pid, const char *path, const void *actions, const void *attributes,
			      char *const argv[], char *const envp[]);

/* The C library's own functions. */
struct exec_real {
	int (*execve)(const char *path, char *const argv[], char *const envp[]);
	int (*execvpe)(const char *name, char *const argv[], char *const envp[]);
	int (*fexecve)(int fd, char *const argv[], char *const envp[]);
	int (*execveat)(int folder, const char *path, char *const argv[], char *const envp[], int flags);
	spawn_function posix_spawn[SPAWN_VERSIONS];
	spawn_function posix_spawnp[SPAWN_VERSIONS];
	spawn_function pidfd_spawn;
	spawn_function pidfd_spawnp;
	int (*system)(const char *command);
	void *(*popen)(const char *command, const char *mode);
	char *(*getenv)(const char *name);
	char *(*secure_getenv)(const char *name);
	int (*setenv)(const char *name, const char *value, int replace);
	char ***(*find_environment)(void); /* where the C library keeps `environ` */
};
extern struct exec_real exec_real;

enum exec_function { BY_EXECVE, BY_EXECVPE, BY_FEXECVE, BY_EXECVEAT, BY_SPAWN };

struct exec_start {
	enum exec_function function;
	const char *path;
	char *const *argv;
	int folder; /* also the descriptor of fexecve */
	int flags;
	spawn_function spawn;
	bool by_name; /* along PATH */
	int *pid;
	const void *actions;
	const void *attributes;
};

/* The program's `environ`, never NULL. */
char *const *exec_environment(void);
int exec_run(const struct exec_start *start, char *const envp[]);

/* `run` a shell command that gives its children what the environment lacks. */
typedef void *(*exec_shell)(const char *command, const void *context);
void *exec_run_shell(const char *command, exec_shell run, const void *context);

#endif
