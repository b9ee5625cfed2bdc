/* Where memory lies that is asked for below HIP. */
#ifndef AMVGPU_HSA_DEVICES_H
#define AMVGPU_HSA_DEVICES_H

#include "hsa_table.h"

struct hsa_place {
	bool on_gpu;      /* or else it is the host's, and not counted */
	unsigned ordinal; /* the runtime's number of the GPU */
	int device;       /* the container's; -1 when there are too many */
};

/* Of an agent; of a pool or region of memory; of a node as the thunk numbers them, with the flags of an allocation. */
struct hsa_place hsa_devices_of_agent(struct hsa_copy *hsa, uint64_t agent);
struct hsa_place hsa_devices_of_pool(struct hsa_copy *hsa, uint64_t pool);
struct hsa_place hsa_devices_of_region(struct hsa_copy *hsa, uint64_t region);
struct hsa_place hsa_devices_of_node(struct hsa_copy *hsa, uint32_t node, uint32_t flags);

#endif
