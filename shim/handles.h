/* Physical memory that a program has by a handle and maps any number of times. It goes when it is neither held nor mapped
 * any more, in HIP as in the HSA runtime below it; in both, code 0 is success. */
#ifndef AMVGPU_HANDLES_H
#define AMVGPU_HANDLES_H

#include "ledger.h"

struct handle_release {
	const void *handle;
	bool known;
	bool was_last;
	struct allocation last;
};

/* One reference less. The entry goes before the runtime is asked: right afterwards the handle may be another thread's. */
void handles_begin_release(struct handle_release *release, const void *handle);
/* `code` is what the runtime answered, which is returned. */
int handles_end_release(const struct handle_release *release, int code);

/* The handle is mapped there now; `copy` as in an allocation. */
void handles_mapped(const void *address, uint64_t bytes, const void *handle, uint8_t copy);
/* A range may cover several mappings, one after the other. */
void handles_unmapped(const void *address, uint64_t bytes);

/* The handle is that of somebody else's memory: an entry under it is that of memory which went unseen. */
void handles_imported(const void *handle);

#endif
