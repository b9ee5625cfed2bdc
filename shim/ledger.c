/* One lock, one open-addressed table that doubles: see ledger.h.
 * Every critical section is a few dozen instructions, against a real hipMalloc of microseconds. */
#include "ledger.h"

#include <stddef.h>

#include "region.h"
#include "sys.h"

enum { FIRST_CAPACITY = 1024 }; /* a power of two */

struct books {
	struct lock lock;
	struct allocation *table; /* an entry without address is free */
	size_t capacity;          /* a power of two, or 0 */
	size_t seats;             /* entries plus those reserved or taken; read and written without the lock */
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

/* The entry, or NULL. */
static struct allocation *find_known(const void *address)
{
	struct allocation *entry = books->capacity ? find(address) : NULL;

	return entry && entry->address ? entry : NULL;
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
	__atomic_store_n(&books->capacity, capacity, __ATOMIC_RELEASE);
	for (size_t i = 0; i < old_capacity; i++) {
		if (old[i].address)
			*find(old[i].address) = old[i];
	}
	if (old)
		sys_munmap(old, old_capacity * sizeof(*old));
	return true;
}

static bool has_room(size_t seats)
{
	return 4 * seats <= 3 * __atomic_load_n(&books->capacity, __ATOMIC_ACQUIRE);
}

static void give_up_seat(void)
{
	__atomic_fetch_sub(&books->seats, 1, __ATOMIC_RELAXED);
}

/* Keeps a quarter of the table free, so that searches stay short and always end. */
static bool reserve_seat(void)
{
	size_t seats = __atomic_add_fetch(&books->seats, 1, __ATOMIC_RELAXED);
	bool room = has_room(seats);

	if (room)
		return true;
	lock_acquire(&books->lock);
	while (!(room = has_room(seats)) && grow())
		;
	lock_release(&books->lock);
	if (!room)
		give_up_seat();
	return room;
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

bool ledger_reserve(unsigned device, uint64_t bytes, uint64_t limit)
{
	if (!reserve_seat())
		return false;
	if (region_charge(device, bytes, limit))
		return true;
	give_up_seat();
	return false;
}

bool ledger_reserve_held(unsigned device, uint64_t bytes)
{
	if (!reserve_seat())
		return false;
	region_add(device, bytes);
	return true;
}

void ledger_cancel(unsigned device, uint64_t bytes)
{
	region_credit(device, bytes);
	give_up_seat();
}

void ledger_commit(const struct allocation *allocation)
{
	struct allocation *entry;
	struct allocation stale;

	lock_acquire(&books->lock);
	entry = find(allocation->address);
	stale = *entry;
	*entry = *allocation;
	lock_release(&books->lock);
	/* HIP gives the address out anew, so it was freed in a way that is not hooked. */
	if (stale.address)
		ledger_cancel(stale.device, stale.bytes);
}

bool ledger_take(const void *address, struct allocation *taken)
{
	struct allocation *entry;

	lock_acquire(&books->lock);
	entry = find_known(address);
	if (entry) {
		*taken = *entry;
		remove_entry(entry);
	}
	lock_release(&books->lock);
	return entry != NULL;
}

void ledger_put_back(const struct allocation *taken)
{
	ledger_commit(taken);
}

void ledger_credit(const struct allocation *taken)
{
	ledger_cancel(taken->device, taken->bytes);
}

bool ledger_look_up(const void *address, struct allocation *found)
{
	struct allocation *entry;

	lock_acquire(&books->lock);
	entry = find_known(address);
	if (entry)
		*found = *entry;
	lock_release(&books->lock);
	return entry != NULL;
}

bool ledger_hold(const void *address)
{
	struct allocation *entry;

	lock_acquire(&books->lock);
	entry = find_known(address);
	if (entry)
		entry->references++;
	lock_release(&books->lock);
	return entry != NULL;
}

bool ledger_merge(const void *address, uint64_t bytes)
{
	struct allocation *entry;

	lock_acquire(&books->lock);
	entry = find_known(address);
	if (entry)
		entry->bytes += bytes;
	lock_release(&books->lock);
	if (entry)
		give_up_seat();
	return entry != NULL;
}

bool ledger_let_go(const void *address, struct allocation *taken)
{
	struct allocation *entry;
	bool last = false;

	lock_acquire(&books->lock);
	entry = find_known(address);
	if (entry && entry->references > 1) {
		entry->references--;
	} else if (entry) {
		last = true;
		*taken = *entry;
		remove_entry(entry);
	}
	lock_release(&books->lock);
	return last;
}

/* Removing an entry may move a later one to its place, so the look goes on there. */
void ledger_sweep(ledger_judge is_gone, void *context)
{
	lock_acquire(&books->lock);
	for (size_t i = 0; i < books->capacity;) {
		struct allocation *entry = &books->table[i];
		struct allocation gone = *entry;

		if (!gone.address || !is_gone(&gone, context)) {
			i++;
			continue;
		}
		remove_entry(entry);
		ledger_cancel(gone.device, gone.bytes);
	}
	lock_release(&books->lock);
}
