/* What every hook that allocates does: book the memory, let HIP allocate, and keep or drop the booking. */
#ifndef AMVGPU_BOOKING_H
#define AMVGPU_BOOKING_H

#include <stdint.h>

#include "hook_table.h"
#include "ledger.h"

struct booking {
	struct hip_copy *hip;
	unsigned ordinal; /* HIP's number of the GPU */
	unsigned device;  /* the container's */
	uint64_t bytes;
};

/* The GPU of this thread. A code other than HIP_SUCCESS is what the program would have got from HIP. */
int booking_device(struct hip_copy *hip, unsigned *ordinal);

/* HIP_SUCCESS when there is room for that much more; otherwise HIP itself has run out of memory, and what it says is
 * returned, so that the thread's last error and HIP's own log agree. */
int booking_open(struct booking *booking, struct hip_copy *hip, uint64_t bytes);
int booking_open_on(struct booking *booking, struct hip_copy *hip, unsigned ordinal, uint64_t bytes);

/* `code` is what HIP answered, which is returned. */
int booking_close(const struct booking *booking, int code, const void *address);
/* The same for another kind of entry. */
int booking_close_as(const struct booking *booking, int code, const struct allocation *entry);

/* Changes the booked bytes to what HIP turned out to take. */
void booking_correct(struct booking *booking, uint64_t bytes);

/* a * b, or the largest number. */
uint64_t booking_product(uint64_t a, uint64_t b);

#endif
