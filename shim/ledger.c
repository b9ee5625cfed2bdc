/* One lock, one open-addressed table that doubles: see ledger.h.
 * Every critical section is a few dozen instructions, against a real hipMalloc of microseconds. */
#include "ledger.h"

#include <stddef.h>

#include "sys.h"

enum { FIRST_CAPACITY = 1024 }; /* a power of two */

struct books {
	struct lock lock;
	struct allocation *table; /* an entry without address is free */
	size_t capacity;          /* a power of two, or 0 */
	size_t seats;             /* entries plus those reserved or taken */
	uint64_t used[LEDGER_DEVICES];
};

static struct books *books;

bool ledger_init(void)
{
	if (!books)
		books = sys_map_wiped_on_fork(sizeof(*books));
	return books != NULL;
}

static size_t home_of(const void *address)
{
	/* Addresses are multiples of large powers of two; the multiplication moves their information up, the shift down. */
	return (size_t)(((uint64_t)(uintptr_t)address * 0x9E3779B97F4A7C15ULL) >> 32) & (books->capacity - 1);
}

/* Where the address is, or the free entry where it belongs. */
static struct allocation *find(const void *address)
{
	size_t index = home_of(address);

	while (books->table[index].address && books->table[index].address != address)
		index = (index + 1) & (books->capacity - 1);
	return &books->table[index];
}

static bool grow(void)
{
	struct allocation *old = books->table;
	size_t old_capacity = books->capacity;
	size_t capacity = old_capacity ? 2 * old_capacity : FIRST_CAPACITY;
	struct allocation *table = sys_map(capacity * sizeof(*table));

	if (!table)
		return false;
	books->table = table;
	books->capacity = capacity;
	for (size_t i = 0; i < old_capacity; i++) {
		if (old[i].address)
			*find(old[i].address) = old[i];
	}
	if (old)
		sys_munmap(old, old_capacity * sizeof(*old));
	return true;
}

/* Keeps a quarter of the table free, so that searches stay short and always end. */
static bool reserve_seat(void)
{
	if (4 * (books->seats + 1) > 3 * books->capacity && !grow())
		return false;
	books->seats++;
	return true;
}

/* Closes the gap that a removed entry leaves, so that later entries of its run are still found. */
static void remove_entry(struct allocation *entry)
{
	size_t mask = books->capacity - 1;
	size_t gap = (size_t)(entry - books->table);

	for (size_t next = (gap + 1) & mask; books->table[next].address; next = (next + 1) & mask) {
		size_t home = home_of(books->table[next].address);

		if (((next - home) & mask) >= ((next - gap) & mask)) {
			books->table[gap] = books->table[next];
			gap = next;
		}
	}
	books->table[gap].address = NULL;
}

static void give_up(unsigned device, uint64_t bytes)
{
	books->used[device] -= bytes;
	books->seats--;
}

bool ledger_reserve(unsigned device, uint64_t bytes, uint64_t limit)
{
	bool reserved = false;

	if (device >= LEDGER_DEVICES)
		return false;
	lock_acquire(&books->lock);
	if (books->used[device] <= limit && bytes <= limit - books->used[device] && reserve_seat()) {
		books->used[device] += bytes;
		reserved = true;
	}
	lock_release(&books->lock);
	return reserved;
}

void ledger_commit(const struct allocation *allocation)
{
	struct allocation *entry;

	lock_acquire(&books->lock);
	entry = find(allocation->address);
	/* HIP gives the address out anew, so it was freed in a way that is not hooked. */
	if (entry->address)
		give_up(entry->device, entry->bytes);
	*entry = *allocation;
	lock_release(&books->lock);
}

void ledger_cancel(unsigned device, uint64_t bytes)
{
	lock_acquire(&books->lock);
	give_up(device, bytes);
	lock_release(&books->lock);
}

bool ledger_take(const void *address, struct allocation *taken)
{
	bool found = false;

	lock_acquire(&books->lock);
	if (books->capacity) {
		struct allocation *entry = find(address);

		found = entry->address != NULL;
		if (found) {
			*taken = *entry;
			remove_entry(entry);
		}
	}
	lock_release(&books->lock);
	return found;
}

void ledger_put_back(const struct allocation *taken)
{
	ledger_commit(taken);
}

void ledger_credit(const struct allocation *taken)
{
	ledger_cancel(taken->device, taken->bytes);
}

uint64_t ledger_used(unsigned device)
{
	if (device >= LEDGER_DEVICES)
		return UINT64_MAX;
	return __atomic_load_n(&books->used[device], __ATOMIC_RELAXED);
}
