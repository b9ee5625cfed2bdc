/* The GPUs as all processes of the container know them, whatever HIP_VISIBLE_DEVICES makes of their numbers. */
#ifndef AMVGPU_DEVICES_H
#define AMVGPU_DEVICES_H

#include "hook_table.h"

/* What is the same in all runtimes' answers about a GPU. */
struct device_name {
	uint32_t domain;   /* of PCI */
	uint32_t location; /* PCI's bus << 8 | device << 3 | function */
	uint64_t uuid;     /* 0: it has none */
};

/* Never 0. */
uint64_t devices_id(const struct device_name *name);
/* The number that the first 16 characters are in hexadecimal, or 0. */
uint64_t devices_uuid(const char *digits);

/* False when there is no memory for a few pages. */
bool devices_init(void);
/* The number of region_device for HIP's number of a GPU; -1 when there is no such GPU, or there are too many. */
int devices_number(struct hip_copy *hip, unsigned ordinal);
/* The copy is about to be another library. */
void devices_forget(const struct hip_copy *hip);

#endif
