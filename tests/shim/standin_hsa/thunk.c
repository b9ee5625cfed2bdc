/* A STAND-IN for AMD's libhsakmt, for machines without a GPU: it has a processor (node 0) and two GPUs (nodes 1 and 2) of
 * 192 GiB, whose memory is bookkeeping only.
 *
 *   STANDIN_HSA_FAIL_FREE  while it is set, nothing can be freed
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NODES = 3, SUCCESS = 0, INVALID_PARAMETER = 3, INVALID_NODE = 5, NO_MEMORY = 6 };
enum { NON_PAGED = 1 << 0 };
/* HsaNodeProperties. */
enum { CPU_CORES = 0, GPU_CORES = 4, LOCATION = 76, DOMAIN = 324, UNIQUE_ID = 328, SIZE_OF_PROPERTIES = 356 };
enum { BLOCKS = 1024 };
#define GPU_BYTES ((uint64_t)192 << 30)
#define ROOM ((uint64_t)1 << 40)

struct block {
	char *address;
	uint64_t bytes;
	uint32_t node; /* 0: the host's */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS];
static uint64_t used[NODES];
static char *next_address;

int hsaKmtOpenKFD(void)
{
	return SUCCESS;
}

static void put(char *properties, int offset, uint64_t value, size_t size)
{
	memcpy(properties + offset, &value, size);
}

int hsaKmtGetNodeProperties(uint32_t node, char *properties)
{
	if (node >= NODES)
		return INVALID_NODE;
	memset(properties, 0, SIZE_OF_PROPERTIES);
	put(properties, node ? GPU_CORES : CPU_CORES, 64, 4);
	if (node) {
		/* Virtual functions of a GPU that is parted: the part's number is above the bus. */
		put(properties, LOCATION, (uint64_t)node << 28 | (0x8302 + 0x100 * (node - 1)), 4);
		put(properties, UNIQUE_ID, 0x8e1bb56457addd00 + node, 8);
	}
	return SUCCESS;
}

static int allocate(uint32_t node, uint64_t bytes, void **address)
{
	if (bytes > GPU_BYTES - used[node])
		return NO_MEMORY;
	for (int i = 0; i < BLOCKS; i++) {
		if (blocks[i].bytes)
			continue;
		if (!next_address)
			next_address = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		blocks[i] = (struct block){next_address, bytes, node};
		next_address += (bytes + 4095) & -(uint64_t)4096;
		used[node] += bytes;
		*address = blocks[i].address;
		return SUCCESS;
	}
	return NO_MEMORY;
}

int hsaKmtAllocMemoryAlign(uint32_t node, uint64_t bytes, uint64_t alignment, uint32_t flags, void **address)
{
	int code;

	(void)alignment;
	if (node >= NODES || !bytes || !address)
		return INVALID_PARAMETER;
	pthread_mutex_lock(&mutex);
	code = allocate(flags & NON_PAGED ? node : 0, bytes, address);
	pthread_mutex_unlock(&mutex);
	return code;
}

/* Asks the other one through the PLT, as newer thunks do. */
int hsaKmtAllocMemory(uint32_t node, uint64_t bytes, uint32_t flags, void **address)
{
	return hsaKmtAllocMemoryAlign(node, bytes, 0, flags, address);
}

int hsaKmtFreeMemory(void *address, uint64_t bytes)
{
	int code = INVALID_PARAMETER;

	(void)bytes;
	if (getenv("STANDIN_HSA_FAIL_FREE"))
		return code;
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < BLOCKS; i++) {
		if (!blocks[i].bytes || blocks[i].address != address)
			continue;
		used[blocks[i].node] -= blocks[i].bytes;
		blocks[i].bytes = 0;
		code = SUCCESS;
	}
	pthread_mutex_unlock(&mutex);
	return code;
}

/* Not part of the thunk: what a GPU has lost. */
uint64_t standin_hsa_used(uint32_t node)
{
	return used[node];
}
