/* Counting in the shared file: see region.h. */
#include "region.h"

#include "log.h"
#include "region_file.h"
#include "sys.h"

/* Nothing real is as large, and sums of as many as there are threads stay far from overflowing. */
#define MOST_BYTES ((uint64_t)1 << 56)

enum { ATTEMPTS = 10000, ATTEMPTS_PER_REAP = 64, MILLISECONDS_PER_REAP = 100 };

/* A forked child finds it empty, and the mapping is gone. */
struct own {
	struct lock lock;
	struct region_view *view; /* NULL as long as this process has no slot, otherwise `place` */
	struct region_view place;
	uint64_t held[REGION_DEVICES];
	uint64_t ids[REGION_DEVICES];
	uint64_t last_reap;
};

static struct own *own;
static char region_path[REGION_PATH_SIZE];
static char fallback_path[REGION_PATH_SIZE];

static bool append(char path[REGION_PATH_SIZE], const char *text)
{
	size_t length = text_length(path);
	size_t more = text_length(text);

	if (length + more >= REGION_PATH_SIZE)
		return false;
	memcpy(path + length, text, more + 1);
	return true;
}

static bool append_number(char path[REGION_PATH_SIZE], uint64_t number)
{
	char digits[24];
	char *first = digits + sizeof(digits) - 1;

	*first = '\0';
	do {
		*--first = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	return append(path, first);
}

bool region_default_path(char path[REGION_PATH_SIZE], const char *root)
{
	struct file_identity identity;

	path[0] = '\0';
	return shared_identity(-1, root, &identity) && append(path, "/dev/shm/.amvgpu-") &&
	       append_number(path, identity.device) && append(path, "-") && append_number(path, identity.inode);
}

bool region_init(const char *folder)
{
	if (own)
		return true;
	if (!region_default_path(fallback_path, "/"))
		fallback_path[0] = '\0';
	region_path[0] = '\0';
	if (folder && *folder && !(append(region_path, folder) && append(region_path, "/region")))
		region_path[0] = '\0';
	own = sys_map_wiped_on_fork(sizeof(*own));
	return own != NULL;
}

/* Not before Linux 4.14: there a child goes on in its parent's slot. */
static bool forks_are_told(void)
{
	return shared_wipes_on_fork(own, sizeof(*own));
}

static enum joined join_at(const char *path, bool forks)
{
	const char *fault = "is not known";
	enum joined result = *path ? region_file_join(&own->place, path, forks, &fault) : NEVER_JOINED;

	if (result == NEVER_JOINED)
		LOG_WARN_ONCE(LOG_TEXT("memory cannot be counted in '"), LOG_TEXT(path), LOG_TEXT("', which "),
			      LOG_TEXT(fault));
	else if (result == JOINED_LATER)
		LOG_WARN_ONCE(LOG_TEXT("no file descriptor is left to count memory with: nothing is allocated "
				       "until there is one"));
	return result;
}

/* Under the lock. */
static void join(void)
{
	bool forks = forks_are_told();
	enum joined result = *region_path ? join_at(region_path, forks) : NEVER_JOINED;

	if (result == NEVER_JOINED) {
		result = join_at(fallback_path, forks);
		memcpy(region_path, fallback_path, sizeof(region_path));
	}
	if (result != NEVER_JOINED)
		return;
	region_path[0] = '\0';
	LOG_WARN_ONCE(LOG_TEXT("each process has the limit for itself, because they cannot be counted together"));
	if (!region_file_private(&own->place))
		own->place = (struct region_view){0};
}

/* Under the lock. */
static void repair(void)
{
	struct region *region = own->place.region;

	LOG_WARN_ONCE(LOG_TEXT("somebody has overwritten '"), LOG_TEXT(region_path), LOG_TEXT("'"));
	for (int i = 0; i < REGION_DEVICES; i++)
		__atomic_store_n(&region->header.devices[i], own->ids[i], __ATOMIC_SEQ_CST);
	region_file_publish(&own->place, own->place.slot == &region->slots[LAST_SLOT] ? NULL : own->held);
}

static struct region_view *join_or_repair(void)
{
	struct region_view *view;

	lock_acquire(&own->lock);
	if (!own->view) {
		join();
		__atomic_store_n(&own->view, own->place.region ? &own->place : NULL, __ATOMIC_RELEASE);
	} else if (!region_file_is_intact(own->view)) {
		repair();
	}
	view = own->view;
	lock_release(&own->lock);
	return view;
}

/* NULL when there is no memory. */
static struct region_view *joined(void)
{
	struct region_view *view = __atomic_load_n(&own->view, __ATOMIC_ACQUIRE);

	return view && region_file_is_intact(view) ? view : join_or_repair();
}

int region_device(uint64_t id)
{
	struct region_view *view = joined();

	for (int i = 0; view && i < REGION_DEVICES; i++) {
		uint64_t *place = &view->region->header.devices[i];
		uint64_t seen = __atomic_load_n(place, __ATOMIC_SEQ_CST);

		if (!seen && __atomic_compare_exchange_n(place, &seen, id, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			seen = id;
		__atomic_store_n(&own->ids[i], seen, __ATOMIC_RELAXED);
		if (seen == id)
			return i;
	}
	if (view)
		LOG_WARN_ONCE(LOG_TEXT("too many GPUs to count their memory: some may not be allocated on"));
	return -1;
}

static uint64_t not_negative(uint64_t value)
{
	return (int64_t)value < 0 ? 0 : value;
}

/* `pending` is read before `used`: what moves from one to the other in between is then seen twice rather than never. */
static uint64_t sum(const struct region *region, unsigned device, bool with_pending)
{
	uint32_t top = __atomic_load_n(&region->header.top, __ATOMIC_SEQ_CST);
	uint64_t total = 0;

	for (uint32_t i = 0; i < (top < REGION_SLOTS ? top : REGION_SLOTS); i++) {
		const struct slot *slot = &region->slots[i];
		uint64_t key = __atomic_load_n(&slot->key, __ATOMIC_SEQ_CST);
		uint64_t part = 0;

		if (!key || (key & KEY_INIT))
			continue;
		if (with_pending)
			part = not_negative(__atomic_load_n(&slot->cells[device].pending, __ATOMIC_SEQ_CST));
		part += not_negative(__atomic_load_n(&slot->cells[device].used, __ATOMIC_SEQ_CST));
		if (__builtin_add_overflow(total, part, &total))
			return UINT64_MAX;
	}
	return total;
}

enum verdict { GRANTED, TOO_MUCH, CONTENDED };

static void add(const struct region_view *view, unsigned device, uint64_t bytes)
{
	__atomic_fetch_add(&own->held[device], bytes, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&view->slot->cells[device].used, bytes, __ATOMIC_SEQ_CST);
}

/* What only others' announcements forbid may be granted a moment later: they may come to nothing. */
static enum verdict try(const struct region_view *view, unsigned device, uint64_t bytes, uint64_t limit)
{
	struct cell *cell = &view->slot->cells[device];
	enum verdict verdict = GRANTED;

	if (bytes > limit)
		return TOO_MUCH;
	__atomic_fetch_add(&cell->pending, bytes, __ATOMIC_SEQ_CST);
	if (sum(view->region, device, true) <= limit) {
		add(view, device, bytes);
	} else {
		uint64_t used = sum(view->region, device, false);

		verdict = used > limit || bytes > limit - used ? TOO_MUCH : CONTENDED;
	}
	__atomic_fetch_sub(&cell->pending, bytes, __ATOMIC_SEQ_CST);
	return verdict;
}

/* One thread of the process at a time, so that they do not stand in each other's way. */
static bool try_patiently(const struct region_view *view, unsigned device, uint64_t bytes, uint64_t limit)
{
	enum verdict verdict = CONTENDED;

	lock_acquire(&own->lock);
	for (int attempt = 1; attempt <= ATTEMPTS && verdict != GRANTED; attempt++) {
		bool last = false;

		verdict = try(view, device, bytes, limit);
		if (verdict == TOO_MUCH)
			last = !region_file_reap(view, region_path);
		else if (verdict == CONTENDED && attempt % ATTEMPTS_PER_REAP == 0)
			region_file_reap(view, region_path);
		if (last)
			break;
		if (verdict == CONTENDED)
			shared_yield();
	}
	lock_release(&own->lock);
	return verdict == GRANTED;
}

bool region_charge(unsigned device, uint64_t bytes, uint64_t limit)
{
	struct region_view *view = joined();

	if (!view || device >= REGION_DEVICES)
		return false;
	limit = limit < MOST_BYTES ? limit : MOST_BYTES;
	return bytes <= limit && (try(view, device, bytes, limit) == GRANTED || try_patiently(view, device, bytes, limit));
}

void region_add(unsigned device, uint64_t bytes)
{
	struct region_view *view = joined();

	if (view && device < REGION_DEVICES)
		add(view, device, bytes);
}

void region_credit(unsigned device, uint64_t bytes)
{
	region_add(device, -bytes);
}

static bool is_time_to_reap(void)
{
	uint64_t now = shared_milliseconds();
	uint64_t last = __atomic_load_n(&own->last_reap, __ATOMIC_RELAXED);

	return now - last >= MILLISECONDS_PER_REAP &&
	       __atomic_compare_exchange_n(&own->last_reap, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

uint64_t region_used(unsigned device)
{
	struct region_view *view = joined();
	uint64_t used;

	if (!view || device >= REGION_DEVICES)
		return UINT64_MAX;
	used = sum(view->region, device, false);
	if (used != not_negative(__atomic_load_n(&own->held[device], __ATOMIC_SEQ_CST)) && is_time_to_reap() &&
	    region_file_reap(view, region_path))
		used = sum(view->region, device, false);
	return used;
}
