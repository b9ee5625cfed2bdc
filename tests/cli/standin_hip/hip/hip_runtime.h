/* A stand-in for HIP and for the GPUs, as much of both as manifests/examples/validate/measure.hip uses, for g++.
 *
 * The GPUs are those that ROCR_VISIBLE_DEVICES names by `GPU-<16 hex digits>`, each an MI300X whose bus number is the
 * last byte of its name. A kernel's groups run one after the other on the units that HSA_CU_MASK leaves, which are dealt
 * out as the kernel driver does: over XCCs, then over shader engines. A GPU that no set names is used as a whole. */
#ifndef STANDIN_HIP_RUNTIME_H
#define STANDIN_HIP_RUNTIME_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define __global__
#define __GFX9__ 1
#define __gfx942__ 1

enum hipError_t { hipSuccess, hipErrorInvalidDevice = 101 };
struct hipUUID {
	char bytes[16];
};
struct hipDeviceProp_t {
	int multiProcessorCount;
	char gcnArchName[256];
};
struct dim3 {
	unsigned x;
	explicit dim3(unsigned count) : x(count) {}
};

namespace standin
{
enum { UNITS = 304, XCCS = 8, ENGINES = 4 };

inline dim3 block(0);
inline dim3 thread(0);
inline unsigned unit; /* on which the running group is, by its bit in the mask */
inline int device;

inline std::vector<std::string> split(const char *name, char separator)
{
	const char *value = std::getenv(name);
	std::vector<std::string> parts(1);

	for (; value && *value; value++) {
		if (*value == separator)
			parts.emplace_back();
		else
			parts.back() += *value;
	}
	return parts;
}

inline const std::string &gpu(int index)
{
	static const std::vector<std::string> visible = split("ROCR_VISIBLE_DEVICES", ',');

	return visible[static_cast<size_t>(index)];
}

inline std::vector<unsigned> units_of(int index)
{
	std::vector<unsigned> units;
	const std::string start = std::to_string(index) + ":";

	for (const std::string &set : split("HSA_CU_MASK", ';')) {
		if (set.compare(0, start.size(), start) != 0)
			continue;
		for (const char *at = set.c_str() + start.size(); *at; at += *at == ',') {
			char *end;
			unsigned first = static_cast<unsigned>(std::strtoul(at, &end, 10));
			unsigned last = *end == '-' ? static_cast<unsigned>(std::strtoul(end + 1, &end, 10)) : first;

			for (unsigned one = first; one <= last; one++)
				units.push_back(one);
			at = end;
		}
	}
	if (!units.empty())
		return units;
	for (unsigned one = 0; one < UNITS; one++)
		units.push_back(one);
	return units;
}
} // namespace standin

#define blockIdx standin::block
#define threadIdx standin::thread
#define hipLaunchKernelGGL(kernel, grid, threads, shared, stream, ...)                                                      \
	do {                                                                                                               \
		std::vector<unsigned> on = standin::units_of(standin::device);                                             \
		for (unsigned group = 0; group < (grid).x; group++) {                                                      \
			standin::block.x = group;                                                                          \
			standin::unit = on[group % on.size()];                                                             \
			kernel(__VA_ARGS__);                                                                               \
		}                                                                                                          \
	} while (0)

/* HW_ID is register 4, XCC_ID register 20; the low bits of HW_ID, the wave's slot, differ from wave to wave. */
inline unsigned __builtin_amdgcn_s_getreg(int operand)
{
	unsigned rank = standin::unit / standin::XCCS;

	if ((operand & 63) == 20)
		return standin::unit % standin::XCCS;
	return rank % standin::ENGINES << 13 | rank / standin::ENGINES << 8 | (standin::block.x & 7);
}
inline void __builtin_amdgcn_s_sleep(int) {}

inline const char *hipGetErrorString(hipError_t code) { return code == hipSuccess ? "none" : "invalid device ordinal"; }
inline hipError_t hipGetLastError() { return hipSuccess; }
inline hipError_t hipDeviceSynchronize() { return hipSuccess; }
inline hipError_t hipGetDeviceCount(int *count)
{
	*count = static_cast<int>(standin::split("ROCR_VISIBLE_DEVICES", ',').size());
	return hipSuccess;
}
inline hipError_t hipSetDevice(int device)
{
	standin::device = device;
	return hipSuccess;
}
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int)
{
	properties->multiProcessorCount = standin::UNITS;
	std::strcpy(properties->gcnArchName, "gfx942:sramecc+:xnack-");
	return hipSuccess;
}
inline hipError_t hipDeviceGetPCIBusId(char *id, int size, int device)
{
	const std::string &name = standin::gpu(device);

	std::snprintf(id, static_cast<size_t>(size), "0000:%s:00.0", name.substr(name.size() - 2).c_str());
	return hipSuccess;
}
inline hipError_t hipDeviceGetUuid(hipUUID *uuid, int device)
{
	std::memcpy(uuid->bytes, standin::gpu(device).c_str() + 4, sizeof(uuid->bytes));
	return hipSuccess;
}
inline hipError_t hipHostMalloc(void **memory, size_t size, unsigned)
{
	*memory = std::calloc(1, size);
	return hipSuccess;
}
inline hipError_t hipHostFree(void *memory)
{
	std::free(memory);
	return hipSuccess;
}

#endif
