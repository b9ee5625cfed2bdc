/* How much memory the container may hold on each of its GPUs: HIP_DEVICE_MEMORY_LIMIT.
 *
 * Format: a decimal number and one optional suffix: k, m or g (either case) for KiB, MiB or GiB. A plain number means
 * bytes, as in HAMi-core: read the other way round, a byte count would become no limit at all.
 * The variable is absent: no limit. It is there but cannot be understood, or is zero: nothing may be allocated, because
 * whoever set it wanted a limit. */
#ifndef AMVGPU_LIMIT_H
#define AMVGPU_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the settings of this process. Called once, before any other function. */
void limit_init(void);
bool limit_is_set(void);
/* Bytes on one GPU; every GPU of a container has the same limit. */
uint64_t limit_bytes(unsigned device);
/* Says once what is wrong with the setting, if anything is. */
void limit_warn_if_faulty(void);

#endif
