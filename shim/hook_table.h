/* The HIP functions that the library knows. To hook one more, add its row here and its hook_<name> to the file of its
 * family (hooks_*.c); stubs, symbol redirection and types follow from the row. All of them return hipError_t, an int.
 *
 * A name keeps its signature and its symbol version in every HIP from 4.2 to 7.2, so it is looked up by name alone; a HIP
 * that lacks a name has no such hook. Handles (streams, pools, arrays, graphs) are pointers that only HIP looks behind. */
#ifndef AMVGPU_HOOK_TABLE_H
#define AMVGPU_HOOK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf.h"

#define PARAMETERS(...) __VA_ARGS__
#define ARGUMENTS(...) __VA_ARGS__

/* Structures that are passed by value. */
struct hip_extent {
	size_t width; /* bytes, or elements of an array */
	size_t height;
	size_t depth;
};
struct hip_ipc_handle {
	char reserved[64];
};
struct hip_pitched {
	void *address;
	size_t pitch;
	size_t width;
	size_t height;
};

/* The parameter of a function that has none: it takes no room, in registers or on the stack. */
struct hip_nothing {};

/* Functions that are replaced. */
#define HIP_HOOKS(ROW) \
	HIP_PLAIN(ROW) HIP_REPORTS(ROW) HIP_ARRAYS(ROW) HIP_POOLS(ROW) HIP_VIRTUAL(ROW) HIP_GRAPHS(ROW) HIP_RESOLVERS(ROW)

#define HIP_PLAIN(ROW)                                                                                                \
	ROW(hipMalloc, PARAMETERS(void **address, size_t bytes), ARGUMENTS(address, bytes))                           \
	ROW(hipExtMallocWithFlags, PARAMETERS(void **address, size_t bytes, unsigned flags),                          \
	    ARGUMENTS(address, bytes, flags))                                                                         \
	ROW(hipMallocManaged, PARAMETERS(void **address, size_t bytes, unsigned flags),                               \
	    ARGUMENTS(address, bytes, flags))                                                                         \
	ROW(hipMallocPitch, PARAMETERS(void **address, size_t *pitch, size_t width, size_t height),                   \
	    ARGUMENTS(address, pitch, width, height))                                                                 \
	ROW(hipMemAllocPitch, PARAMETERS(void **address, size_t *pitch, size_t width, size_t height, unsigned item),  \
	    ARGUMENTS(address, pitch, width, height, item))                                                           \
	ROW(hipMalloc3D, PARAMETERS(struct hip_pitched *result, struct hip_extent extent), ARGUMENTS(result, extent)) \
	ROW(hipFree, PARAMETERS(void *address), ARGUMENTS(address))                                                   \
	ROW(hipIpcOpenMemHandle, PARAMETERS(void **address, struct hip_ipc_handle handle, unsigned flags),            \
	    ARGUMENTS(address, handle, flags))                                                                        \
	ROW(hipExternalMemoryGetMappedBuffer, PARAMETERS(void **address, void *memory, const void *part),             \
	    ARGUMENTS(address, memory, part))                                                                         \
	ROW(hipDeviceReset, PARAMETERS(struct hip_nothing nothing), ARGUMENTS(nothing))

#define HIP_REPORTS(ROW)                                                                                           \
	ROW(hipMemGetInfo, PARAMETERS(size_t *free, size_t *total), ARGUMENTS(free, total))                        \
	ROW(hipDeviceTotalMem, PARAMETERS(size_t *bytes, int device), ARGUMENTS(bytes, device))                    \
	ROW(hipDeviceGetAttribute, PARAMETERS(int *value, int attribute, int device),                              \
	    ARGUMENTS(value, attribute, device))                                                                   \
	ROW(hipGetDeviceProperties, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device))       \
	ROW(hipGetDevicePropertiesR0000, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device))  \
	ROW(hipGetDevicePropertiesR0600, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device))

#define HIP_ARRAYS(ROW)                                                                                            \
	ROW(hipMallocArray, PARAMETERS(void **array, const void *channels, size_t width, size_t height,            \
				       unsigned flags), ARGUMENTS(array, channels, width, height, flags))          \
	ROW(hipMalloc3DArray, PARAMETERS(void **array, const void *channels, struct hip_extent extent,             \
					 unsigned flags), ARGUMENTS(array, channels, extent, flags))               \
	ROW(hipArrayCreate, PARAMETERS(void **array, const void *descriptor), ARGUMENTS(array, descriptor))        \
	ROW(hipArray3DCreate, PARAMETERS(void **array, const void *descriptor), ARGUMENTS(array, descriptor))      \
	ROW(hipMallocMipmappedArray, PARAMETERS(void **array, const void *channels, struct hip_extent extent,      \
						unsigned levels, unsigned flags),                                  \
	    ARGUMENTS(array, channels, extent, levels, flags))                                                     \
	ROW(hipMipmappedArrayCreate, PARAMETERS(void **array, void *descriptor, unsigned levels),                  \
	    ARGUMENTS(array, descriptor, levels))                                                                  \
	ROW(hipFreeArray, PARAMETERS(void *array), ARGUMENTS(array))                                               \
	ROW(hipArrayDestroy, PARAMETERS(void *array), ARGUMENTS(array))                                            \
	ROW(hipFreeMipmappedArray, PARAMETERS(void *array), ARGUMENTS(array))                                      \
	ROW(hipMipmappedArrayDestroy, PARAMETERS(void *array), ARGUMENTS(array))

#define HIP_POOLS(ROW)                                                                                             \
	ROW(hipMallocAsync, PARAMETERS(void **address, size_t bytes, void *stream),                                \
	    ARGUMENTS(address, bytes, stream))                                                                     \
	ROW(hipMallocFromPoolAsync, PARAMETERS(void **address, size_t bytes, void *pool, void *stream),            \
	    ARGUMENTS(address, bytes, pool, stream))                                                               \
	ROW(hipFreeAsync, PARAMETERS(void *address, void *stream), ARGUMENTS(address, stream))                     \
	ROW(hipMemPoolCreate, PARAMETERS(void **pool, const void *properties), ARGUMENTS(pool, properties))        \
	ROW(hipMemPoolDestroy, PARAMETERS(void *pool), ARGUMENTS(pool))                                            \
	ROW(hipMemPoolTrimTo, PARAMETERS(void *pool, size_t keep), ARGUMENTS(pool, keep))                          \
	ROW(hipMemPoolSetAttribute, PARAMETERS(void *pool, int attribute, void *value),                            \
	    ARGUMENTS(pool, attribute, value))                                                                     \
	ROW(hipMemPoolImportPointer, PARAMETERS(void **address, void *pool, void *exported),                       \
	    ARGUMENTS(address, pool, exported))

#define HIP_VIRTUAL(ROW)                                                                                           \
	ROW(hipMemCreate, PARAMETERS(void **handle, size_t bytes, const void *properties,                          \
				     unsigned long long flags), ARGUMENTS(handle, bytes, properties, flags))       \
	ROW(hipMemRelease, PARAMETERS(void *handle), ARGUMENTS(handle))                                            \
	ROW(hipMemMap, PARAMETERS(void *address, size_t bytes, size_t offset, void *handle,                        \
				  unsigned long long flags), ARGUMENTS(address, bytes, offset, handle, flags))     \
	ROW(hipMemUnmap, PARAMETERS(void *address, size_t bytes), ARGUMENTS(address, bytes))                       \
	ROW(hipMemRetainAllocationHandle, PARAMETERS(void **handle, void *address), ARGUMENTS(handle, address))    \
	ROW(hipMemImportFromShareableHandle, PARAMETERS(void **handle, void *shared, int type),                    \
	    ARGUMENTS(handle, shared, type))

#define NODE_PARAMETERS void **node, void *graph, const void *const *before, size_t count, void *parameters
#define HIP_GRAPHS(ROW)                                                                                            \
	ROW(hipGraphAddMemAllocNode, PARAMETERS(NODE_PARAMETERS), ARGUMENTS(node, graph, before, count, parameters)) \
	ROW(hipGraphAddNode, PARAMETERS(NODE_PARAMETERS), ARGUMENTS(node, graph, before, count, parameters))       \
	ROW(hipStreamEndCapture, PARAMETERS(void *stream, void **graph), ARGUMENTS(stream, graph))                 \
	ROW(hipStreamEndCapture_spt, PARAMETERS(void *stream, void **graph), ARGUMENTS(stream, graph))             \
	ROW(hipGraphInstantiate, PARAMETERS(void **exec, void *graph, void **fault, char *log, size_t size),       \
	    ARGUMENTS(exec, graph, fault, log, size))                                                              \
	ROW(hipGraphInstantiateWithFlags, PARAMETERS(void **exec, void *graph, unsigned long long flags),          \
	    ARGUMENTS(exec, graph, flags))                                                                         \
	ROW(hipGraphInstantiateWithParams, PARAMETERS(void **exec, void *graph, void *parameters),                 \
	    ARGUMENTS(exec, graph, parameters))                                                                    \
	ROW(hipGraphExecDestroy, PARAMETERS(void *exec), ARGUMENTS(exec))                                          \
	ROW(hipGraphDestroy, PARAMETERS(void *graph), ARGUMENTS(graph))

#define HIP_RESOLVERS(ROW)                                                                                         \
	ROW(hipGetProcAddress, PARAMETERS(const char *name, void **function, int version, uint64_t flags,          \
					  int *status), ARGUMENTS(name, function, version, flags, status))         \
	ROW(hipGetDriverEntryPoint, PARAMETERS(const char *name, void **function, unsigned long long flags,        \
					       int *status), ARGUMENTS(name, function, flags, status))             \
	ROW(hipGetDriverEntryPoint_spt, PARAMETERS(const char *name, void **function, unsigned long long flags,    \
						   int *status), ARGUMENTS(name, function, flags, status))

/* Functions that the hooks call. */
#define HIP_CALLED(ROW)                                                                                            \
	ROW(hipGetDevice, PARAMETERS(int *device), ARGUMENTS(device))                                              \
	ROW(hipGetLastError, PARAMETERS(void), ARGUMENTS())                                                        \
	ROW(hipDeviceGetPCIBusId, PARAMETERS(char *address, int size, int device), ARGUMENTS(address, size, device)) \
	ROW(hipDeviceGetUuid, PARAMETERS(char *uuid, int device), ARGUMENTS(uuid, device))                         \
	ROW(hipDeviceGetMemPool, PARAMETERS(void **pool, int device), ARGUMENTS(pool, device))                     \
	ROW(hipMemPoolGetAttribute, PARAMETERS(void *pool, int attribute, void *value),                            \
	    ARGUMENTS(pool, attribute, value))                                                                     \
	ROW(hipMemPtrGetInfo, PARAMETERS(void *address, size_t *bytes), ARGUMENTS(address, bytes))                 \
	ROW(hipStreamGetDevice, PARAMETERS(void *stream, int *device), ARGUMENTS(stream, device))                  \
	ROW(hipStreamIsCapturing, PARAMETERS(void *stream, int *status), ARGUMENTS(stream, status))                \
	ROW(hipThreadExchangeStreamCaptureMode, PARAMETERS(int *mode), ARGUMENTS(mode))

enum hip_code { HIP_SUCCESS = 0, HIP_OUT_OF_MEMORY = 2, HIP_NO_DEVICE = 100, HIP_INVALID_DEVICE = 101 };
enum { HIP_LOCATION_DEVICE = 1 };

/* One loaded copy of libamdhip64. A process can have several, for instance that of a PyTorch wheel and that of
 * /opt/rocm, so each one has its own real functions and its own entry points. */
struct hip_copy {
	bool in_use;
	unsigned index;
	struct elf_span span;
	struct {
#define REAL(name, parameters, arguments) int (*name)(parameters);
		HIP_HOOKS(REAL)
		HIP_CALLED(REAL)
#undef REAL
	} real;
};

#define DECLARE_HOOK(name, parameters, arguments) int hook_##name(struct hip_copy *hip, parameters);
HIP_HOOKS(DECLARE_HOOK)
#undef DECLARE_HOOK

#endif
