/* The list of pools: see pools.h. Its lock is held while HIP is asked for what a pool has reserved, so that the answers
 * are applied in the order in which they were given. HIP never waits for this lock: its own calls pass the hooks. */
#include "pools.h"

#include "devices.h"
#include "region.h"
#include "sys.h"

enum { RESERVED_NOW = 5, USED_NOW = 7, MOST_POOLS = 512 };

struct pool {
	const void *handle; /* NULL: free */
	struct hip_copy *hip;
	unsigned ordinal;
	unsigned device;
	bool destroyed;
	uint64_t charged;
	uint64_t held; /* by the program */
};

struct pools {
	struct lock lock;
	unsigned count; /* all pools that there ever were are below */
	struct pool list[MOST_POOLS];
};

static struct pools *pools;

bool pools_init(void)
{
	if (!pools)
		pools = sys_map_wiped_on_fork(sizeof(*pools));
	return pools != NULL;
}

static struct pool *find(const void *handle)
{
	for (unsigned i = 0; i < pools->count; i++) {
		if (pools->list[i].handle == handle)
			return &pools->list[i];
	}
	return NULL;
}

/* NULL when there is no room or the GPU has no number. */
static struct pool *find_or_add(struct hip_copy *hip, const void *handle, unsigned ordinal)
{
	struct pool *pool = find(handle);
	int device = pool ? 0 : devices_number(hip, ordinal);

	if (pool || device < 0)
		return pool;
	pool = find(NULL);
	if (!pool && pools->count < MOST_POOLS)
		pool = &pools->list[pools->count++];
	if (pool)
		*pool = (struct pool){.handle = handle, .hip = hip, .ordinal = ordinal, .device = (unsigned)device};
	return pool;
}

static uint64_t ask(struct hip_copy *hip, void *handle, int attribute, uint64_t unknown)
{
	uint64_t value = 0;

	if (!hip->real.hipMemPoolGetAttribute ||
	    hip->real.hipMemPoolGetAttribute(handle, attribute, &value) != HIP_SUCCESS)
		return unknown;
	return value;
}

/* `booked` bytes of the new charge are held already. False when the pool does not tell. */
static bool charge(struct pool *pool, uint64_t booked)
{
	uint64_t reserved = pool->destroyed ? pool->held
					    : ask(pool->hip, (void *)pool->handle, RESERVED_NOW, UINT64_MAX);

	if (reserved == UINT64_MAX)
		return false;
	region_add(pool->device, reserved - pool->charged - booked);
	pool->charged = reserved;
	if (pool->destroyed && !pool->held)
		pool->handle = NULL;
	return true;
}

bool pools_ordinal(const void *handle, unsigned *ordinal)
{
	const struct pool *pool;

	lock_acquire(&pools->lock);
	pool = find(handle);
	if (pool)
		*ordinal = pool->ordinal;
	lock_release(&pools->lock);
	return pool != NULL;
}

void pools_note(struct hip_copy *hip, const void *handle, unsigned ordinal)
{
	lock_acquire(&pools->lock);
	find_or_add(hip, handle, ordinal);
	lock_release(&pools->lock);
}

uint64_t pools_idle(struct hip_copy *hip, void *handle)
{
	uint64_t used = ask(hip, handle, USED_NOW, UINT64_MAX);
	uint64_t reserved = ask(hip, handle, RESERVED_NOW, 0);

	return reserved > used ? reserved - used : 0;
}

bool pools_settle(struct hip_copy *hip, void *handle, struct booking *booking, int64_t held)
{
	struct pool *pool;
	bool settled;

	lock_acquire(&pools->lock);
	pool = find_or_add(hip, handle, booking->ordinal);
	settled = pool && pool->device == booking->device && charge(pool, booking->bytes);
	if (settled) {
		pool->held += (uint64_t)held;
		booking->bytes = 0;
	}
	lock_release(&pools->lock);
	return settled;
}

void pools_refresh(struct hip_copy *hip, void *handle, int64_t held)
{
	struct pool *pool;

	(void)hip;
	lock_acquire(&pools->lock);
	pool = find(handle);
	if (pool) {
		pool->held += (uint64_t)held;
		charge(pool, 0);
	}
	lock_release(&pools->lock);
}

static bool give_back(struct pool *pool)
{
	uint64_t before = pool->charged;

	charge(pool, 0);
	if (!pool->destroyed && pool->hip->real.hipMemPoolTrimTo) {
		pool->hip->real.hipMemPoolTrimTo((void *)pool->handle, 0);
		charge(pool, 0);
	}
	return pool->charged < before;
}

bool pools_give_back(struct hip_copy *hip, unsigned device)
{
	bool any = false;

	lock_acquire(&pools->lock);
	for (unsigned i = 0; i < pools->count; i++) {
		struct pool *pool = &pools->list[i];

		if (pool->handle && pool->hip == hip && pool->device == device)
			any |= give_back(pool);
	}
	lock_release(&pools->lock);
	return any;
}

void pools_refresh_all(struct hip_copy *hip, unsigned device)
{
	if (!__atomic_load_n(&pools->count, __ATOMIC_RELAXED))
		return;
	lock_acquire(&pools->lock);
	for (unsigned i = 0; i < pools->count; i++) {
		struct pool *pool = &pools->list[i];

		if (pool->handle && pool->hip == hip && pool->device == device)
			charge(pool, 0);
	}
	lock_release(&pools->lock);
}

void pools_destroyed(const void *handle)
{
	struct pool *pool;

	lock_acquire(&pools->lock);
	pool = find(handle);
	if (pool) {
		pool->destroyed = true;
		charge(pool, 0);
	}
	lock_release(&pools->lock);
}

static void drop(struct pool *pool)
{
	region_credit(pool->device, pool->charged);
	pool->handle = NULL;
}

void pools_reset(const struct hip_copy *hip, unsigned device)
{
	lock_acquire(&pools->lock);
	for (unsigned i = 0; i < pools->count; i++) {
		struct pool *pool = &pools->list[i];

		if (pool->handle && pool->hip == hip && pool->device == device)
			drop(pool);
	}
	lock_release(&pools->lock);
}

void pools_forget(const struct hip_copy *hip)
{
	lock_acquire(&pools->lock);
	for (unsigned i = 0; i < pools->count; i++) {
		if (pools->list[i].handle && pools->list[i].hip == hip)
			drop(&pools->list[i]);
	}
	lock_release(&pools->lock);
}
