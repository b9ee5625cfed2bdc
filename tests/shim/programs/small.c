/* Starts a program with an environment of its own from a thread with the smallest stack: small <entries> <program>
 * The exit status is the program's. */
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static char *path;
static char **environment;
static int status = -1;

static void *start(void *unused)
{
	char *argv[] = {path, NULL};
	pid_t child;

	if (posix_spawn(&child, path, NULL, NULL, argv, environment) == 0)
		waitpid(child, &status, 0);
	return unused;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0;
	pthread_attr_t attributes;
	pthread_t thread;

	environment = calloc((size_t)count + 1, sizeof(*environment));
	for (int i = 0; i < count; i++) {
		if (asprintf(&environment[i], "V%d=x", i) < 0)
			return EXIT_FAILURE;
	}
	path = argv[argc - 1];
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	if (pthread_create(&thread, &attributes, start, NULL) != 0)
		return EXIT_FAILURE;
	pthread_join(thread, NULL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
