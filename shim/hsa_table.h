/* The functions below HIP that the library knows: those of the HSA runtime (libhsa-runtime64) and of its thunk to the
 * driver (libhsakmt). They are replaced only with AMVGPU_HSA=1. To hook one more, add its row here and its hook_<name> to
 * hooks_hsa*.c. All of them return an enum, whose 0 is success.
 *
 * Pools, regions, agents and handles are structures of one 64-bit number each, which are passed as that number is; so are
 * the thunk's flags, of 32 bits. */
#ifndef AMVGPU_HSA_TABLE_H
#define AMVGPU_HSA_TABLE_H

#include "elf.h"
#include "hook_table.h"

#define HSA_HOOKS(ROW) HSA_MEMORY(ROW) HSA_VIRTUAL(ROW) HSA_REPORTS(ROW) HSA_THUNK(ROW)

#define HSA_MEMORY(ROW)                                                                                               \
	ROW(hsa_memory_allocate, PARAMETERS(uint64_t region, size_t bytes, void **address),                           \
	    ARGUMENTS(region, bytes, address))                                                                        \
	ROW(hsa_memory_free, PARAMETERS(void *address), ARGUMENTS(address))                                           \
	ROW(hsa_amd_memory_pool_allocate, PARAMETERS(uint64_t pool, size_t bytes, uint32_t flags, void **address),    \
	    ARGUMENTS(pool, bytes, flags, address))                                                                   \
	ROW(hsa_amd_memory_pool_free, PARAMETERS(void *address), ARGUMENTS(address))

#define HSA_VIRTUAL(ROW)                                                                                              \
	ROW(hsa_amd_vmem_handle_create, PARAMETERS(uint64_t pool, size_t bytes, int type, uint64_t flags,             \
						   uint64_t *handle), ARGUMENTS(pool, bytes, type, flags, handle))    \
	ROW(hsa_amd_vmem_handle_release, PARAMETERS(uint64_t handle), ARGUMENTS(handle))                              \
	ROW(hsa_amd_vmem_map, PARAMETERS(void *address, size_t bytes, size_t offset, uint64_t handle,                 \
					 uint64_t flags), ARGUMENTS(address, bytes, offset, handle, flags))           \
	ROW(hsa_amd_vmem_unmap, PARAMETERS(void *address, size_t bytes), ARGUMENTS(address, bytes))                   \
	ROW(hsa_amd_vmem_retain_alloc_handle, PARAMETERS(uint64_t *handle, void *address), ARGUMENTS(handle, address)) \
	ROW(hsa_amd_vmem_import_shareable_handle, PARAMETERS(int fd, uint64_t *handle), ARGUMENTS(fd, handle))

#define HSA_REPORTS(ROW)                                                                                              \
	ROW(hsa_agent_get_info, PARAMETERS(uint64_t agent, int attribute, void *value),                               \
	    ARGUMENTS(agent, attribute, value))                                                                       \
	ROW(hsa_region_get_info, PARAMETERS(uint64_t region, int attribute, void *value),                             \
	    ARGUMENTS(region, attribute, value))                                                                      \
	ROW(hsa_amd_memory_pool_get_info, PARAMETERS(uint64_t pool, int attribute, void *value),                      \
	    ARGUMENTS(pool, attribute, value))

#define HSA_THUNK(ROW)                                                                                                \
	ROW(hsaKmtAllocMemory, PARAMETERS(uint32_t node, uint64_t bytes, uint32_t flags, void **address),             \
	    ARGUMENTS(node, bytes, flags, address))                                                                   \
	ROW(hsaKmtAllocMemoryAlign, PARAMETERS(uint32_t node, uint64_t bytes, uint64_t alignment, uint32_t flags,     \
					       void **address), ARGUMENTS(node, bytes, alignment, flags, address))    \
	ROW(hsaKmtFreeMemory, PARAMETERS(void *address, uint64_t bytes), ARGUMENTS(address, bytes))

/* Functions that the hooks call. */
typedef int (*hsa_visitor)(uint64_t each, void *context);
#define HSA_CALLED(ROW)                                                                                               \
	ROW(hsa_iterate_agents, PARAMETERS(hsa_visitor visit, void *context), ARGUMENTS(visit, context))              \
	ROW(hsa_agent_iterate_regions, PARAMETERS(uint64_t agent, hsa_visitor visit, void *context),                  \
	    ARGUMENTS(agent, visit, context))                                                                         \
	ROW(hsa_amd_agent_iterate_memory_pools, PARAMETERS(uint64_t agent, hsa_visitor visit, void *context),         \
	    ARGUMENTS(agent, visit, context))                                                                         \
	ROW(hsaKmtGetNodeProperties, PARAMETERS(uint32_t node, void *properties), ARGUMENTS(node, properties))

enum hsa_code { HSA_SUCCESS = 0, HSA_INFO_BREAK = 1, HSA_OUT_OF_RESOURCES = 0x1008 };
enum { HSA_THUNK_NO_MEMORY = 6 };

/* One loaded copy of either library; what it lacks is NULL. */
struct hsa_copy {
	bool in_use;
	struct elf_span span;
	struct {
#define REAL(name, parameters, arguments) int (*name)(parameters);
		HSA_HOOKS(REAL)
		HSA_CALLED(REAL)
#undef REAL
	} real;
};

#define DECLARE_HOOK(name, parameters, arguments) int hook_##name(struct hsa_copy *hsa, parameters);
HSA_HOOKS(DECLARE_HOOK)
#undef DECLARE_HOOK

#endif
