/* Threads that race for the memory of one GPU: threads <number of threads> <rounds>
 *
 * First, in every round all threads ask for all of the memory at the same moment: one of them may get it.
 * Then they allocate and free pieces of it at random. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

enum { PIECES = 16 };

static pthread_barrier_t barrier;
static size_t total;
static int rounds;
static int winners;
static int rounds_with_one_winner;
static int refused;

static void race_for_all(void)
{
	for (int round = 0; round < rounds; round++) {
		void *all = NULL;

		pthread_barrier_wait(&barrier);
		if (hipMalloc(&all, total) == 0)
			__atomic_fetch_add(&winners, 1, __ATOMIC_RELAXED);
		/* The one who waits last counts; the others wait until it has. */
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
			rounds_with_one_winner += winners == 1;
			winners = 0;
		}
		if (all)
			hipFree(all);
	}
}

static void allocate_and_free(unsigned seed)
{
	void *pieces[PIECES] = {NULL};

	for (int i = 0; i < rounds * PIECES; i++) {
		void **piece = &pieces[(unsigned)rand_r(&seed) % PIECES];

		/* Nobody runs ahead of the others, however few processors there are. */
		if (i % PIECES == 0)
			pthread_barrier_wait(&barrier);
		if (*piece) {
			hipFree(*piece);
			*piece = NULL;
		} else if (hipMalloc(piece, total / 64 + (unsigned)rand_r(&seed) % (total / 16)) != 0) {
			*piece = NULL;
			__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
		}
	}
	for (int i = 0; i < PIECES; i++)
		hipFree(pieces[i]);
}

static void *work(void *seed)
{
	race_for_all();
	pthread_barrier_wait(&barrier);
	allocate_and_free((unsigned)(uintptr_t)seed);
	return NULL;
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[1]) : 0;
	pthread_t threads[64];
	size_t left = 0;

	if (count < 1 || count > 64)
		return 2;
	rounds = atoi(argv[2]);
	hipMemGetInfo(NULL, &total);
	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	hipMemGetInfo(&left, NULL);
	printf("{\"total\":%zu,\"peak\":%zu,\"left\":%zu,\"roundsWithOneWinner\":%d,\"refused\":%d}\n", total,
	       standin_hip_peak(0), left, rounds_with_one_winner, refused);
	return EXIT_SUCCESS;
}
