/* What a pair of hipMalloc and hipFree, and a hipMemGetInfo, cost in nanoseconds: the best of many short series, which a
 * busy machine disturbs least. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hip_api.h"

enum { SERIES = 200, CALLS = 1000 };

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void pair(void)
{
	void *address = NULL;

	hipMalloc(&address, 1 << 20);
	hipFree(address);
}

static void info(void)
{
	size_t free_bytes;
	size_t total;

	hipMemGetInfo(&free_bytes, &total);
}

static double best(void (*call)(void))
{
	double least = 1e18;

	for (int series = 0; series < SERIES; series++) {
		double start = now();
		double each;

		for (int i = 0; i < CALLS; i++)
			call();
		each = (now() - start) / CALLS;
		least = each < least ? each : least;
	}
	return least;
}

int main(void)
{
	double pair_ns = best(pair);

	printf("{\"pair\":%.1f,\"info\":%.1f}\n", pair_ns, best(info));
	return EXIT_SUCCESS;
}
