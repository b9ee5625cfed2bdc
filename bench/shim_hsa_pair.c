/* What a pair of hsa_amd_memory_pool_allocate and hsa_amd_memory_pool_free costs in nanoseconds, against the stand-in for
 * the HSA runtime: the best of many short series. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { SERIES = 200, CALLS = 200 };
/* The coarse-grained memory of the first GPU. */
#define POOL ((uint64_t)33)

int hsa_init(void);
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void **address);
int hsa_amd_memory_pool_free(void *address);

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(void)
{
	double least = 1e18;

	hsa_init();
	for (int series = 0; series < SERIES; series++) {
		double start = now();
		double each;

		for (int i = 0; i < CALLS; i++) {
			void *address = NULL;

			if (hsa_amd_memory_pool_allocate(POOL, 1 << 20, 0, &address) != 0)
				return 1;
			hsa_amd_memory_pool_free(address);
		}
		each = (now() - start) / CALLS;
		least = each < least ? each : least;
	}
	printf("{\"pair\":%.1f}\n", least);
	return 0;
}
