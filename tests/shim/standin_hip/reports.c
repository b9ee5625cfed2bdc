/* STAND-IN for parts of libamdhip64 (see standin_hip.c): what is told about a GPU, and look-ups of functions. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#pragma GCC visibility push(default)

/* hipDeviceProp_tR0000: HIP headers 5.0 to 5.7, and the plain symbol in 6.x and 7.x. hipDeviceProp_tR0600: 6.0 to 7.2. */
struct properties_r0000 {
	char name[256];
	size_t totalGlobalMem;
	char rest[792 - 256 - sizeof(size_t)];
};
struct properties_r0600 {
	char name[256];
	char identity[32];
	size_t totalGlobalMem;
	char rest[1472 - 288 - sizeof(size_t)];
};
_Static_assert(sizeof(struct properties_r0000) == 792, "R0000");
_Static_assert(sizeof(struct properties_r0600) == 1472, "R0600");
_Static_assert(__builtin_offsetof(struct properties_r0600, totalGlobalMem) == 288, "R0600");

hipError_t hipDeviceGetPCIBusId(char *address, int size, int device)
{
	hipError_t code = check_device(device);

	if (code == hipSuccess && getenv("STANDIN_HIP_NAMELESS"))
		code = hipErrorUnknown;
	if (code == hipSuccess)
		snprintf(address, (size_t)size, "0000:%02x:00.0", physical[device] + 1);
	return result(code);
}

hipError_t hipDeviceGetUuid(char *uuid, int device)
{
	hipError_t code = check_device(device);

	if (code == hipSuccess && getenv("STANDIN_HIP_NAMELESS"))
		code = hipErrorUnknown;
	if (code == hipSuccess)
		memset(uuid, 'a' + physical[device], 16);
	return result(code);
}

hipError_t hipDeviceGetAttribute(int *value, int attribute, int device)
{
	size_t total = 0;
	hipError_t code = value ? hipDeviceTotalMem(&total, device) : hipErrorInvalidValue;

	if (code == hipSuccess)
		*value = attribute == 84 ? (int)(total < INT32_MAX ? total : INT32_MAX) : attribute;
	return result(code);
}

hipError_t hipGetDevicePropertiesR0600(struct properties_r0600 *properties, int device)
{
	size_t total = 0;
	hipError_t code = hipDeviceTotalMem(&total, device);

	if (code == hipSuccess && !properties)
		code = hipErrorInvalidValue;
	if (code != hipSuccess)
		return result(code);
	memset(properties, 0x5a, sizeof(*properties)); /* whoever writes to the wrong place shows */
	snprintf(properties->name, sizeof(properties->name), "Stand-in GPU %d", device);
	properties->totalGlobalMem = total;
	return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0000(struct properties_r0000 *properties, int device)
{
	struct properties_r0600 modern;
	hipError_t code = properties ? hipGetDevicePropertiesR0600(&modern, device) : hipErrorInvalidValue;

	if (code != hipSuccess)
		return result(code);
	memset(properties, 0x5a, sizeof(*properties));
	memcpy(properties->name, modern.name, sizeof(properties->name));
	properties->totalGlobalMem = modern.totalGlobalMem;
	return hipSuccess;
}

hipError_t hipGetDeviceProperties(struct properties_r0000 *properties, int device)
{
	return hipGetDevicePropertiesR0000(properties, device);
}

hipError_t hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status)
{
	Dl_info self;
	void *handle = NULL;

	(void)version;
	(void)flags;
	if (!name || !function)
		return result(hipErrorInvalidValue);
	if (dladdr((void *)check_device, &self))
		handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	*function = handle ? dlsym(handle, name) : NULL;
	if (handle)
		dlclose(handle);
	if (status)
		*status = *function == NULL;
	return result(*function ? hipSuccess : hipErrorNotFound);
}
