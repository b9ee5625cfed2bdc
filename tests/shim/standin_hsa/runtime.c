/* A STAND-IN for AMD's libhsa-runtime64, for machines without a GPU; it gets its memory from the stand-in for libhsakmt.
 * An agent's handle is its node plus one. A GPU has three lots of memory: coarse-grained, fine-grained and the LDS. Pools
 * and regions are the same, and their handles are 16 times the agent's, plus 1, 2 and 3; the host has one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BREAK = 1, INVALID_ARGUMENT = 0x1001, OUT_OF_RESOURCES = 0x1008, NOT_INITIALIZED = 0x100B };
enum { CPU = 1, GPUS = 2, COARSE = 1, FINE = 2, GROUP = 3 };
enum { PAGED = 0, NON_PAGED = 1, GROUP_SEGMENT = 3, NODE_SIZE = 4096 };
#define GPU_BYTES ((uint64_t)192 << 30)

int hsaKmtAllocMemory(uint32_t node, uint64_t bytes, uint32_t flags, void **address);
int hsaKmtFreeMemory(void *address, uint64_t bytes);
int hsaKmtGetNodeProperties(uint32_t node, char *properties);
uint64_t standin_hsa_used(uint32_t node);

typedef int (*visitor)(uint64_t each, void *context);

static int started;

int hsa_init(void)
{
	started++;
	return SUCCESS;
}

int hsa_shut_down(void)
{
	started--;
	return SUCCESS;
}

static uint32_t node_of(uint64_t agent)
{
	return (uint32_t)agent - 1;
}

/* The host comes in the middle: the number of a GPU is not that of its agent. */
int hsa_iterate_agents(visitor visit, void *context)
{
	static const uint64_t agents[] = {CPU + 1, CPU, CPU + 2};
	int code = started > 0 ? SUCCESS : NOT_INITIALIZED;

	for (int i = 0; i < GPUS + 1 && code == SUCCESS; i++)
		code = visit(agents[i], context);
	return code;
}

int hsa_agent_get_info(uint64_t agent, int attribute, void *value)
{
	char node[NODE_SIZE];
	uint64_t unique;

	if (started <= 0)
		return NOT_INITIALIZED;
	hsaKmtGetNodeProperties(node_of(agent), node);
	memcpy(&unique, node + 328, sizeof(unique));
	if (attribute == 17)
		*(int *)value = agent != CPU;
	else if (attribute == 0xA006)
		memcpy(value, node + 76, 4);
	else if (attribute == 0xA00F)
		memcpy(value, node + 324, 4);
	else if (attribute == 0xA011)
		sprintf(value, agent == CPU ? "CPU-XX" : "GPU-%016llx", (unsigned long long)unique);
	else if (attribute == 0xA015)
		*(uint64_t *)value = GPU_BYTES - standin_hsa_used(node_of(agent));
	else
		return INVALID_ARGUMENT;
	return SUCCESS;
}

static int iterate(uint64_t agent, visitor visit, void *context)
{
	int last = agent == CPU ? COARSE : GROUP;
	int code = SUCCESS;

	for (int lot = COARSE; lot <= last && code == SUCCESS; lot++)
		code = visit(16 * agent + lot, context);
	return code;
}

int hsa_amd_agent_iterate_memory_pools(uint64_t agent, visitor visit, void *context)
{
	return iterate(agent, visit, context);
}

int hsa_agent_iterate_regions(uint64_t agent, visitor visit, void *context)
{
	return iterate(agent, visit, context);
}

static int get_info(uint64_t memory, int attribute, int largest, void *value)
{
	if (attribute == 0)
		*(int *)value = memory % 16 == GROUP ? GROUP_SEGMENT : 0;
	else if (attribute == 2 || attribute == largest)
		*(uint64_t *)value = memory % 16 == GROUP ? 65536 : GPU_BYTES;
	else
		return INVALID_ARGUMENT;
	return SUCCESS;
}

int hsa_amd_memory_pool_get_info(uint64_t pool, int attribute, void *value)
{
	return get_info(pool, attribute, 16, value);
}

int hsa_region_get_info(uint64_t region, int attribute, void *value)
{
	return get_info(region, attribute, 4, value);
}

static int allocate(uint64_t memory, size_t bytes, void **address)
{
	uint32_t node = node_of(memory / 16);

	if (started <= 0)
		return NOT_INITIALIZED;
	if (!address || !bytes)
		return INVALID_ARGUMENT;
	return hsaKmtAllocMemory(node, bytes, node ? NON_PAGED : PAGED, address) == 0 ? SUCCESS : OUT_OF_RESOURCES;
}

int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void **address)
{
	(void)flags;
	return allocate(pool, bytes, address);
}

int hsa_memory_allocate(uint64_t region, size_t bytes, void **address)
{
	return allocate(region, bytes, address);
}

int hsa_memory_free(void *address)
{
	return hsaKmtFreeMemory(address, 0) == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int hsa_amd_memory_pool_free(void *address)
{
	return hsa_memory_free(address);
}

/* Physical memory: it goes when it is neither held nor mapped. */
struct physical {
	void *memory;
	int uses;
};
static struct {
	void *address;
	struct physical *physical;
} mapping;

static int use(struct physical *physical, int change)
{
	physical->uses += change;
	if (physical->uses)
		return SUCCESS;
	hsaKmtFreeMemory(physical->memory, 0);
	free(physical);
	return SUCCESS;
}

int hsa_amd_vmem_handle_create(uint64_t pool, size_t bytes, int type, uint64_t flags, uint64_t *handle)
{
	struct physical *made = calloc(1, sizeof(*made));
	int code = allocate(pool, bytes, &made->memory);

	(void)type;
	(void)flags;
	*handle = (uintptr_t)made;
	return code == SUCCESS ? use(made, 1) : code;
}

int hsa_amd_vmem_handle_release(uint64_t handle)
{
	return handle ? use((struct physical *)handle, -1) : INVALID_ARGUMENT;
}

int hsa_amd_vmem_map(void *address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	(void)bytes;
	(void)offset;
	(void)flags;
	mapping.address = address;
	mapping.physical = (struct physical *)handle;
	return use(mapping.physical, 1);
}

int hsa_amd_vmem_unmap(void *address, size_t bytes)
{
	(void)bytes;
	return address == mapping.address ? use(mapping.physical, -1) : INVALID_ARGUMENT;
}

int hsa_amd_vmem_retain_alloc_handle(uint64_t *handle, void *address)
{
	if (address != mapping.address)
		return INVALID_ARGUMENT;
	*handle = (uintptr_t)mapping.physical;
	return use(mapping.physical, 1);
}

/* Memory of another process: this one's GPU memory does not shrink. */
int hsa_amd_vmem_import_shareable_handle(int fd, uint64_t *handle)
{
	struct physical *made = calloc(1, sizeof(*made));

	(void)fd;
	*handle = (uintptr_t)made;
	return use(made, 1);
}
