/* What the parts of the stand-in share; see standin_hip.c for what it is. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

typedef int hipError_t;
enum {
	hipSuccess = 0,
	hipErrorInvalidValue = 1,
	hipErrorOutOfMemory = 2,
	hipErrorNoDevice = 100,
	hipErrorInvalidDevice = 101,
	hipErrorNotFound = 500,
	hipErrorStreamCaptureUnsupported = 900,
	hipErrorStreamCaptureInvalidated = 901,
	hipErrorUnknown = 999
};

hipError_t hipMalloc(void **address, size_t bytes);
hipError_t hipFree(void *address);
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes);
hipError_t hipDeviceTotalMem(size_t *bytes, int device);
struct properties_r0600;
hipError_t hipGetDevicePropertiesR0600(struct properties_r0600 *properties, int device);
hipError_t hipMallocPitch(void **address, size_t *pitch, size_t width, size_t height);

#pragma GCC visibility pop
#pragma GCC visibility push(hidden)

enum { MAX_DEVICES = 64 };
/* Which GPU each of HIP's is. */
extern int physical[MAX_DEVICES];
/* hipMalloc itself, without the linker. */
hipError_t own_malloc(void **address, size_t bytes);
hipError_t result(hipError_t code);
hipError_t check_device(int device);
int current(void);
bool take_memory(int device, size_t bytes);
void give_memory(int device, size_t bytes);
hipError_t allocate_range(void **address, size_t room, int device, size_t bytes);
hipError_t release(void *address);
/* False when the address is not of a pool. */
bool release_to_pool(void *address);
void reset_pools(int device);

/* A stream; NULL is the default one. */
struct stream {
	int device;
	struct graph *captured; /* NULL: it is not captured */
	bool spoilt;            /* what is captured is of no use any more */
	struct stream *next;
};
/* False when this thread may not do such a thing while a stream is captured; then the capture is spoilt. */
bool captures_allow(void);
hipError_t add_memory_node(struct graph *graph, int device, size_t bytes, void **address);

#pragma GCC visibility pop

#endif
