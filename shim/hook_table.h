/* The HIP functions that the library knows. To hook one more, add its row here and its hook_<name> to hooks.c (or to
 * a new file); stubs, symbol redirection and types follow from the row. All of them return hipError_t, an int.
 *
 * A name keeps its signature and its symbol version in every HIP from 4.2 to 7.2, so it is looked up by name alone. */
#ifndef AMVGPU_HOOK_TABLE_H
#define AMVGPU_HOOK_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#define PARAMETERS(...) __VA_ARGS__
#define ARGUMENTS(...) __VA_ARGS__

/* Functions that are replaced. */
#define HIP_HOOKS(ROW)                                                                                             \
	ROW(hipMalloc, PARAMETERS(void **address, size_t bytes), ARGUMENTS(address, bytes))                        \
	ROW(hipFree, PARAMETERS(void *address), ARGUMENTS(address))                                                \
	ROW(hipMemGetInfo, PARAMETERS(size_t *free, size_t *total), ARGUMENTS(free, total))                        \
	ROW(hipDeviceTotalMem, PARAMETERS(size_t *bytes, int device), ARGUMENTS(bytes, device))                    \
	ROW(hipGetDeviceProperties, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device))      \
	ROW(hipGetDevicePropertiesR0000, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device)) \
	ROW(hipGetDevicePropertiesR0600, PARAMETERS(void *properties, int device), ARGUMENTS(properties, device))

/* Functions that the hooks call. */
#define HIP_CALLED(ROW) ROW(hipGetDevice, PARAMETERS(int *device), ARGUMENTS(device))

enum hip_code { HIP_SUCCESS = 0, HIP_OUT_OF_MEMORY = 2 };

/* One loaded copy of libamdhip64. A process can have several, for instance that of a PyTorch wheel and that of
 * /opt/rocm, so each one has its own real functions and its own entry points. */
struct hip_copy {
	bool in_use;
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
