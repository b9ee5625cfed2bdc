/* Takes memory from the HSA runtime's stand-in: six MiB, six more, gives back, six again, gives back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define POOL ((uint64_t)33) /* the coarse-grained memory of the first GPU */

int hsa_init(void);
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void **address);
int hsa_amd_memory_pool_free(void *address);

static int take(void **address)
{
	return hsa_amd_memory_pool_allocate(POOL, 6 << 20, 0, address);
}

int main(void)
{
	void *first = NULL;
	void *second = NULL;
	int codes[5];

	hsa_init();
	codes[0] = take(&first);
	codes[1] = take(&second);
	codes[2] = hsa_amd_memory_pool_free(first);
	codes[3] = take(&first);
	codes[4] = hsa_amd_memory_pool_free(first);
	printf("{\"codes\":[%d,%d,%d,%d,%d]}\n", codes[0], codes[1], codes[2], codes[3], codes[4]);
	return 0;
}
