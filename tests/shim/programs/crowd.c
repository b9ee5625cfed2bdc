/* Many threads that are inside hipMalloc at the same moment: crowd <threads>
 *
 * In each round every thread takes its share of the memory while all others are inside too, and then, alone, one byte
 * too much. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

enum { ROUNDS = 50, MOST_THREADS = 256 };

static pthread_barrier_t barrier;
static int count;
static size_t share;
static int granted;
static int refused;

/* Everybody waits; one of them switches the meeting inside hipMalloc on or off; everybody goes on. */
static void switch_meeting(int threads)
{
	if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
		standin_hip_meet(threads);
	pthread_barrier_wait(&barrier);
}

static void *work(void *unused)
{
	(void)unused;
	for (int round = 0; round < ROUNDS; round++) {
		void *mine = NULL;
		void *more = NULL;

		switch_meeting(count);
		if (hipMalloc(&mine, share) == 0)
			__atomic_fetch_add(&granted, 1, __ATOMIC_RELAXED);
		switch_meeting(0);
		if (hipMalloc(&more, share + 1) != 0)
			__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
		pthread_barrier_wait(&barrier);
		hipFree(mine);
		hipFree(more);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST_THREADS];
	size_t total = 0;
	size_t left = 0;

	count = argc == 2 ? atoi(argv[1]) : 0;
	if (count < 1 || count > MOST_THREADS)
		return 2;
	hipMemGetInfo(NULL, &total);
	share = total / (size_t)count;
	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	hipMemGetInfo(&left, NULL);
	printf("{\"granted\":%d,\"refused\":%d,\"left\":%zu,\"peak\":%zu,\"total\":%zu}\n", granted, refused, left,
	       standin_hip_peak(0), total);
	return EXIT_SUCCESS;
}
