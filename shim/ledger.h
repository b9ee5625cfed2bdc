/* What this process holds on each GPU, and under which addresses and handles.
 *
 * The books are kept in the order reserve -> real allocation -> commit or cancel, and take -> real free -> credit or put
 * back. Bytes are counted before HIP is asked, so that threads and processes which race can never pass the limit together.
 * A seat in the table is reserved along with them, so that nothing can fail once HIP has handed out the memory.
 * An address leaves the table before the real free: right afterwards HIP may give it to another thread.
 *
 * The bytes are those of region.h; here is only the table of who they belong to. A forked child starts with an empty one:
 * it cannot use, and does not own, what its parent allocated. */
#ifndef AMVGPU_LEDGER_H
#define AMVGPU_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

enum allocation_kind {
	KIND_PLAIN,  /* memory that goes when it is freed; `owner` is set for an array, whose address is only a handle */
	KIND_POOLED, /* memory of the pool `owner`, which is charged as a whole */
	KIND_HANDLE, /* physical memory, which goes when it is neither held nor mapped */
	KIND_MAPPED, /* an address range where the handle `owner` is mapped */
	KIND_GRAPH,  /* memory nodes of a graph, on one GPU */
	KIND_EXEC,   /* a graph that can be launched, made from the graph `owner` */
};

enum { ALLOCATION_BELOW_HIP = UINT8_MAX };

struct allocation {
	const void *address; /* or handle */
	const void *owner;
	uint64_t bytes;  /* charged for this entry */
	uint64_t pooled; /* bytes that a pool is charged for */
	uint16_t device; /* a number of region_device */
	uint8_t copy;    /* of HIP, or ALLOCATION_BELOW_HIP */
	uint8_t kind;
	uint32_t references; /* of a handle or graph; otherwise 0 */
};

/* False when there is no memory for the books. */
bool ledger_init(void);

/* False when the bytes do not fit under the limit (or cannot be booked). */
bool ledger_reserve(unsigned device, uint64_t bytes, uint64_t limit);
/* The same for an entry without bytes, or whose bytes are held already. */
bool ledger_reserve_held(unsigned device, uint64_t bytes);
void ledger_commit(const struct allocation *allocation);
void ledger_cancel(unsigned device, uint64_t bytes);

/* False when the address is not in the books. */
bool ledger_take(const void *address, struct allocation *taken);
void ledger_put_back(const struct allocation *taken);
void ledger_credit(const struct allocation *taken);

/* Copies the entry; false when there is none. */
bool ledger_look_up(const void *address, struct allocation *found);
/* One reference more; false when there is no such entry. */
bool ledger_hold(const void *address);
/* Moves booked bytes, and the seat booked for them, to an existing entry; false when there is none. */
bool ledger_merge(const void *address, uint64_t bytes);
/* One reference less. True when it was the last one: then it counts as taken. */
bool ledger_let_go(const void *address, struct allocation *taken);

/* Credits all entries that `is_gone` says are. */
typedef bool (*ledger_judge)(const struct allocation *allocation, void *context);
void ledger_sweep(ledger_judge is_gone, void *context);

#endif
