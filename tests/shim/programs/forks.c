/* Forked children and the memory of their parent.
 *
 *   forks once   the parent holds everything, a child looks and allocates, the parent looks again
 *   forks busy   children are forked while other threads of the parent are inside HIP; each child uses HIP in threads
 *                of its own, whose control blocks lie where those of the parent's threads were */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_api.h"

enum { THREADS = 4, CHILDREN = 100, HANG_SECONDS = 30, PIECE = 4096 };

static size_t total;
static bool stop;

static void print_child(void *of_parent)
{
	size_t left = 0;
	void *all = NULL;
	void *more = NULL;
	int codes[4];

	hipMemGetInfo(&left, NULL);
	codes[0] = hipMalloc(&all, total);
	codes[1] = hipMalloc(&more, 1);
	codes[2] = hipFree(all);
	codes[3] = hipFree(of_parent);
	printf("{\"who\":\"child\",\"left\":%zu,\"codes\":[%d,%d,%d,%d]}\n", left, codes[0], codes[1], codes[2], codes[3]);
	fflush(stdout);
}

static int fork_once(void)
{
	size_t left = 1;
	void *all = NULL;
	void *more = NULL;
	int status = -1;
	int codes[2];
	pid_t child;

	if (hipMalloc(&all, total) != 0)
		return EXIT_FAILURE;
	child = fork();
	if (child == 0) {
		print_child(all);
		_exit(EXIT_SUCCESS);
	}
	waitpid(child, &status, 0);
	hipMemGetInfo(&left, NULL);
	codes[0] = hipMalloc(&more, 1);
	codes[1] = hipFree(all);
	printf("{\"who\":\"parent\",\"left\":%zu,\"codes\":[%d,%d]}\n", left, codes[0], codes[1]);
	return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void *hammer(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		void *address = NULL;

		if (hipMalloc(&address, PIECE) == 0)
			hipFree(address);
	}
	return NULL;
}

/* Counts what goes wrong: half of the memory must be granted once, and more than all of it never. */
static void *use_in_child(void *unused)
{
	uintptr_t faults = 0;
	void *address = NULL;

	(void)unused;
	faults += hipMalloc(&address, total + 1) != 2;
	faults += hipMalloc(&address, total / (2 * THREADS)) != 0;
	faults += hipFree(address) != 0;
	return (void *)faults;
}

static int run_child(void)
{
	pthread_t threads[THREADS];
	uintptr_t faults = 0;
	size_t left = 0;

	alarm(HANG_SECONDS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, use_in_child, NULL);
	for (int i = 0; i < THREADS; i++) {
		void *result = NULL;

		pthread_join(threads[i], &result);
		faults += (uintptr_t)result;
	}
	hipMemGetInfo(&left, NULL);
	/* The parent's threads hold a piece each, or none. */
	return faults == 0 && left <= total && left >= total - THREADS * PIECE ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int fork_busily(void)
{
	pthread_t threads[THREADS];
	int good = 0;

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hammer, NULL);
	for (int i = 0; i < CHILDREN; i++) {
		int status = -1;
		pid_t child = fork();

		if (child == 0)
			_exit(run_child());
		waitpid(child, &status, 0);
		good += status == 0;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("{\"children\":%d,\"good\":%d}\n", CHILDREN, good);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	hipMemGetInfo(NULL, &total);
	return strcmp(argv[1], "once") == 0 ? fork_once() : fork_busily();
}
