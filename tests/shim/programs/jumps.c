/* Leaves hipMalloc without returning from it, and then asks for too much: jumps <way>
 *
 *   jump    a signal handler jumps out of it, and this thread goes on
 *   exit    the thread ends in it, and others get its stack
 *   cancel  the thread is cancelled in it, the same
 *
 * Prints what hipMalloc answers afterwards to a request for twice the memory, from different depths of the stack. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hip_api.h"

enum { DEPTHS = 40, STEP = 97, SHALLOW = 20 };

void standin_hip_interrupt(void (*by)(void));

static sigjmp_buf start;
static size_t total;
static int codes[DEPTHS];

static void jump(int number)
{
	(void)number;
	siglongjmp(start, 1);
}

static void interrupt(void)
{
	raise(SIGUSR1);
}

static void end_thread(void)
{
	pthread_exit(NULL);
}

static void cancel(void)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

/* From so many bytes further down the stack, which are used. */
static __attribute__((noinline)) int ask_from(size_t depth, size_t bytes)
{
	volatile char *room = alloca(depth);
	void *address = NULL;
	int code;

	memset((char *)room, 0, depth);
	code = hipMalloc(&address, bytes);
	if (code == 0)
		hipFree(address);
	return code;
}

static void *ask_for_little(void *unused)
{
	ask_from(SHALLOW * STEP, 4096);
	return unused;
}

static void ask_for_too_much(void)
{
	for (int i = 0; i < DEPTHS; i++)
		codes[i] = ask_from((size_t)(i + 1) * STEP, 2 * total);
}

static void *ask_in_thread(void *unused)
{
	ask_for_too_much();
	return unused;
}

static void run(void *(*work)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	hipMemGetInfo(NULL, &total);
	signal(SIGUSR1, jump);
	standin_hip_interrupt(strcmp(way, "jump") == 0 ? interrupt : strcmp(way, "exit") == 0 ? end_thread : cancel);
	if (strcmp(way, "jump") != 0)
		run(ask_for_little);
	else if (sigsetjmp(start, 1) == 0)
		ask_for_little(NULL);
	standin_hip_interrupt(NULL);
	if (strcmp(way, "jump") == 0)
		ask_for_too_much();
	else
		run(ask_in_thread);
	printf("{\"codes\":[");
	for (int i = 0; i < DEPTHS; i++)
		printf("%s%d", i ? "," : "", codes[i]);
	printf("]}\n");
	return EXIT_SUCCESS;
}
