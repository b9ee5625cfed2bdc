/* Declarations of the HIP functions that the test programs use; the same for AMD's library and for the stand-in. */
#ifndef TESTS_HIP_API_H
#define TESTS_HIP_API_H

#include <stddef.h>
#include <stdint.h>

/* Large enough for every layout of hipDeviceProp_t. */
struct hip_properties {
	char bytes[4096];
};
enum { TOTAL_IN_R0600 = 288, TOTAL_IN_R0000 = 256 };

int hipGetDeviceCount(int *count);
int hipGetDevice(int *device);
int hipSetDevice(int device);
int hipMalloc(void **address, size_t bytes);
int hipFree(void *address);
int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int hipDeviceTotalMem(size_t *bytes, int device);
int hipGetDeviceProperties(struct hip_properties *properties, int device);
int hipGetDevicePropertiesR0600(struct hip_properties *properties, int device);
int hipGetLastError(void);
int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status);

/* Only in the stand-in: the most that was ever held on the device. */
size_t standin_hip_peak(int device);
/* Only in the stand-in: hipMalloc goes on only when this many threads are inside of it; 0 ends that. */
void standin_hip_meet(int threads);

#endif
