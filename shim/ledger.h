/* What this process holds on each GPU, and under which addresses.
 *
 * The books are kept in the order reserve -> real allocation -> commit or cancel, and take -> real free -> credit or put
 * back. Bytes are counted before HIP is asked, so that threads which race can never pass the limit together. A seat in
 * the table is reserved along with them, so that nothing can fail once HIP has handed out the memory.
 * An address leaves the table before the real free: right afterwards HIP may give it to another thread.
 *
 * A forked child starts with empty books: it cannot use, and does not own, what its parent allocated. */
#ifndef AMVGPU_LEDGER_H
#define AMVGPU_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

enum { LEDGER_DEVICES = 256 };

struct allocation {
	const void *address;
	uint64_t bytes;
	unsigned device;
};

/* False when there is no memory for the books. */
bool ledger_init(void);

/* False when the bytes do not fit under the limit (or cannot be booked). */
bool ledger_reserve(unsigned device, uint64_t bytes, uint64_t limit);
void ledger_commit(const struct allocation *allocation);
void ledger_cancel(unsigned device, uint64_t bytes);

/* False when the address is not in the books. */
bool ledger_take(const void *address, struct allocation *taken);
void ledger_put_back(const struct allocation *taken);
void ledger_credit(const struct allocation *taken);

/* Bytes held and reserved on the device. */
uint64_t ledger_used(unsigned device);

#endif
