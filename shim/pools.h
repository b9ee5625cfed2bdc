/* Pools of stream-ordered memory (hipMallocAsync). What is freed stays with its pool until the pool gives it back, so what
 * the GPU loses is what the pools have reserved, and that is what is charged. */
#ifndef AMVGPU_POOLS_H
#define AMVGPU_POOLS_H

#include "booking.h"

/* False when there is no memory for the list. */
bool pools_init(void);

/* The GPU of a pool that the program has made; false when it is not known. */
bool pools_ordinal(const void *handle, unsigned *ordinal);
void pools_note(struct hip_copy *hip, const void *handle, unsigned ordinal);

/* How much the pool can hand out of what it has reserved. */
uint64_t pools_idle(struct hip_copy *hip, void *handle);
/* Charges what the pool has reserved by now, in place of what is booked. False, with the booking untouched, when the pool
 * does not tell or there is no room in the list. `held`: bytes that the program got (or, negative, freed). */
bool pools_settle(struct hip_copy *hip, void *handle, struct booking *booking, int64_t held);
/* The same without a booking. */
void pools_refresh(struct hip_copy *hip, void *handle, int64_t held);

/* Makes the pools on the GPU give back what they do not need; true when that was anything. */
bool pools_give_back(struct hip_copy *hip, unsigned device);
/* Charges what all pools on the GPU have reserved by now: they shrink by themselves when streams are waited for. */
void pools_refresh_all(struct hip_copy *hip, unsigned device);

/* A destroyed pool lives on until its last memory is freed. */
void pools_destroyed(const void *handle);
/* All pools of the copy on the GPU are gone. */
void pools_reset(const struct hip_copy *hip, unsigned device);
/* The copy is about to be another library, which knows none of the pools. */
void pools_forget(const struct hip_copy *hip);

#endif
