/* STAND-IN for parts of libamdhip64 (see standin_hip.c): virtual memory management. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "standin.h"

#define PUBLIC __attribute__((visibility("default")))

struct physical {
	int device;
	size_t bytes;
	int references; /* holders and mappings */
};
struct mapping {
	char *address;
	size_t bytes;
	struct physical *physical;
	struct mapping *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static void drop(struct physical *physical)
{
	if (--physical->references)
		return;
	give_memory(physical->device, physical->bytes);
	free(physical);
}

PUBLIC hipError_t hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *wanted,
				       unsigned long long flags)
{
	(void)alignment;
	(void)flags;
	*address = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return *address == MAP_FAILED ? result(hipErrorOutOfMemory) : hipSuccess;
}

/* The properties as HIP 5.5 and later have them, or as HIP 5.0 to 5.4. */
PUBLIC hipError_t hipMemCreate(struct physical **handle, size_t bytes, const int *properties, unsigned long long flags)
{
	int kind = properties[0] ? properties[2] : properties[1];
	int device = properties[0] ? properties[3] : properties[2];

	(void)flags;
	if (kind != 1)
		device = 0, bytes = 0; /* on the host */
	if (check_device(device) != hipSuccess)
		return result(hipErrorInvalidDevice);
	if (!take_memory(device, bytes))
		return result(hipErrorOutOfMemory);
	*handle = malloc(sizeof(**handle));
	**handle = (struct physical){device, bytes, 1};
	return hipSuccess;
}

PUBLIC hipError_t hipMemImportFromShareableHandle(struct physical **handle, void *shared, int type)
{
	(void)shared;
	(void)type;
	*handle = malloc(sizeof(**handle));
	**handle = (struct physical){current(), 0, 1};
	return hipSuccess;
}

PUBLIC hipError_t hipMemRelease(struct physical *handle)
{
	if (getenv("STANDIN_HIP_FAIL_FREE"))
		return result(hipErrorUnknown);
	pthread_mutex_lock(&mutex);
	drop(handle);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemMap(char *address, size_t bytes, size_t offset, struct physical *handle,
			    unsigned long long flags)
{
	struct mapping *mapping = malloc(sizeof(*mapping));

	(void)offset;
	(void)flags;
	pthread_mutex_lock(&mutex);
	*mapping = (struct mapping){address, bytes, handle, mappings};
	mappings = mapping;
	handle->references++;
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemUnmap(char *address, size_t bytes)
{
	hipError_t code = hipErrorInvalidValue;

	pthread_mutex_lock(&mutex);
	for (struct mapping **link = &mappings; *link;) {
		struct mapping *mapping = *link;

		if (mapping->address < address || mapping->address >= address + bytes) {
			link = &mapping->next;
			continue;
		}
		*link = mapping->next;
		drop(mapping->physical);
		free(mapping);
		code = hipSuccess;
	}
	pthread_mutex_unlock(&mutex);
	return result(code);
}

PUBLIC hipError_t hipMemRetainAllocationHandle(struct physical **handle, char *address)
{
	hipError_t code = hipErrorInvalidValue;

	pthread_mutex_lock(&mutex);
	for (struct mapping *mapping = mappings; mapping; mapping = mapping->next) {
		if (mapping->address == address) {
			*handle = mapping->physical;
			mapping->physical->references++;
			code = hipSuccess;
		}
	}
	pthread_mutex_unlock(&mutex);
	return result(code);
}
