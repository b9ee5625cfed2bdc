/* A STAND-IN for a libamdhip64 that gets its memory from the HSA runtime, as AMD's does. It has only what a program needs
 * to find its GPUs, to allocate, and to load code, for which HIP allocates of its own accord.
 *
 *   STANDIN_HIP_5  while it is set, PCI addresses are as in HIP 5
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, MOST_GPUS = 8, COARSE = 1 };

typedef int (*visitor)(uint64_t each, void *context);
int hsa_init(void);
int hsa_iterate_agents(visitor visit, void *context);
int hsa_agent_get_info(uint64_t agent, int attribute, void *value);
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void **address);
int hsa_amd_memory_pool_free(void *address);
int hsa_amd_memory_pool_get_info(uint64_t pool, int attribute, void *value);

static uint64_t agents[MOST_GPUS];
static int count;
static __thread int current;
static int (*detour)(uint64_t pool, size_t bytes, void **address);

static int note(uint64_t agent, void *context)
{
	int is_gpu = 0;

	(void)context;
	hsa_agent_get_info(agent, 17, &is_gpu);
	if (is_gpu && count < MOST_GPUS)
		agents[count++] = agent;
	return 0;
}

__attribute__((constructor)) static void start(void)
{
	hsa_init();
	hsa_iterate_agents(note, NULL);
}

static uint64_t pool(void)
{
	return 16 * agents[current] + COARSE;
}

int hipGetDeviceCount(int *found)
{
	*found = count;
	return SUCCESS;
}

int hipGetDevice(int *device)
{
	*device = current;
	return SUCCESS;
}

int hipSetDevice(int device)
{
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	current = device;
	return SUCCESS;
}

int hipMalloc(void **address, size_t bytes)
{
	if (!address)
		return INVALID_VALUE;
	if (detour)
		return detour(pool(), bytes, address) == 0 ? SUCCESS : OUT_OF_MEMORY;
	return hsa_amd_memory_pool_allocate(pool(), bytes, 0, address) == 0 ? SUCCESS : OUT_OF_MEMORY;
}

/* Not part of HIP: from now on hipMalloc reaches the runtime by way of this, as it does under a profiler. */
int standin_hip_detour(int (*way)(uint64_t pool, size_t bytes, void **address))
{
	detour = way;
	return SUCCESS;
}

int hipFree(void *address)
{
	return !address || hsa_amd_memory_pool_free(address) == 0 ? SUCCESS : INVALID_VALUE;
}

int hipDeviceTotalMem(size_t *bytes, int device)
{
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	return hsa_amd_memory_pool_get_info(16 * agents[device] + COARSE, 2, bytes);
}

int hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	hsa_agent_get_info(agents[current], 0xA015, free_bytes);
	return hipDeviceTotalMem(total, current);
}

int hipDeviceGetPCIBusId(char *address, int size, int device)
{
	uint32_t location = 0;

	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	hsa_agent_get_info(agents[device], 0xA006, &location);
	/* Which function it is, HIP 5 does not say. */
	snprintf(address, (size_t)size, getenv("STANDIN_HIP_5") ? "%04x:%02x:%02x.0" : "%04x:%02x:%02x.%01x", 0u,
		 location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
	return SUCCESS;
}

int hipDeviceGetUuid(char *uuid, int device)
{
	char text[64];

	hsa_agent_get_info(agents[device], 0xA011, text);
	memcpy(uuid, text + 4, 16);
	return SUCCESS;
}

/* Memory for the code, for which no function of HIP's was asked. */
int hipModuleLoadData(void **module, const void *image)
{
	return hsa_amd_memory_pool_allocate(pool(), *(const size_t *)image, 0, module) == 0 ? SUCCESS : OUT_OF_MEMORY;
}

/* Tells HIP's view of the GPU, by a function that is not hooked. */
int standin_hip_sees(size_t *total, size_t *available)
{
	hsa_agent_get_info(agents[current], 0xA015, available);
	return hsa_amd_memory_pool_get_info(pool(), 2, total);
}
