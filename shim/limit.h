/* How much memory the container may hold on each of its GPUs: HIP_DEVICE_MEMORY_LIMIT.
 *
 * Format: a decimal number and one optional suffix: k, m or g (either case) for KiB, MiB or GiB. A plain number means
 * bytes, as in HAMi-core: read the other way round, a byte count would become no limit at all.
 * The variable is absent: no limit. It is there but cannot be understood, or is zero: nothing may be allocated, because
 * whoever set it wanted a limit.
 *
 * The limit holds on each GPU, not for their sum: a pod asks for GPUs and for memory per GPU, the scheduler books that
 * much on each of them, and a sum would let the container take on one GPU what was booked on another.
 * HIP_DEVICE_MEMORY_LIMIT_<n>, as HAMi-core has it, is for the n-th GPU that HIP shows. It can only lower the limit. */
#ifndef AMVGPU_LIMIT_H
#define AMVGPU_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* What the GPU loses by an allocation is a multiple of its pages; larger ones are a matter of the GPU and of the driver's
 * mood. The limit is rounded down to it, so that all that is reported can also be allocated. */
#define LIMIT_PAGE ((uint64_t)4096)

/* Reads the settings of this process. Called once, before any other function. */
void limit_init(void);
bool limit_is_set(void);
/* Bytes on one GPU, by HIP's number of it; UINT64_MAX when only other GPUs have a limit. */
uint64_t limit_bytes(unsigned device);
/* Says once what is wrong with the setting, if anything is. */
void limit_warn_if_faulty(void);

/* Bytes as they are charged: whole pages. */
uint64_t limit_round_up(uint64_t bytes);
/* The folder that the processes of this container share, or NULL. */
const char *limit_region_folder(void);
/* Is managed memory charged? It lies on the host until a GPU with page faults uses it, and may fill the GPU then. */
bool limit_counts_managed(void);
/* Is memory charged that programs take below HIP? */
bool limit_counts_hsa(void);

#endif
