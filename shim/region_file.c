/* Getting and judging slots: see region_file.h. */
#include "region_file.h"

#include "signals.h"
#include "sys.h"

#define MAGIC 0x3130757076646d61ULL /* "amdvpu01"; the digits are the version of the layout */

enum { PATIENCE = 300, BAD_SLOT = -1 };

enum occupied { OCCUPIED, BUSY, NO_DESCRIPTOR, UNUSABLE };

static bool header_is_valid(int fd)
{
	struct region_header header;
	struct file_identity file;

	return shared_identity(fd, "", &file) && file.size == sizeof(struct region) &&
	       shared_read(fd, &header, sizeof(header)) == (long)sizeof(header) && header.magic == MAGIC &&
	       header.slot_count == REGION_SLOTS;
}

static bool refill(int fd)
{
	const struct region_header header = {.magic = MAGIC, .slot_count = REGION_SLOTS};
	struct signals signals;
	bool done;

	signals_hold(&signals);
	done = shared_refill(fd, sizeof(struct region)) == 0 &&
	       shared_write(fd, &header, sizeof(header)) == (long)sizeof(header);
	signals_let_go(&signals);
	return done;
}

/* A new, damaged or foreign file is made anew, but only when nobody holds a slot: whoever has one has it mapped. */
static enum occupied make_valid(int fd)
{
	enum occupied result = OCCUPIED;

	if (header_is_valid(fd))
		return OCCUPIED;
	if (shared_lock(fd, LOCK_ALONE, 0, REGION_SLOTS) < 0)
		return BUSY;
	if (!header_is_valid(fd) && !refill(fd))
		result = UNUSABLE;
	shared_lock(fd, LOCK_NONE, 0, REGION_SLOTS);
	return result;
}

/* Whoever gets the lock owns the slot: its former owner is gone. */
static int lock_slot(int fd, bool *joins)
{
	*joins = false;
	for (int i = 0; i < REGION_SLOTS; i++) {
		if (shared_lock(fd, LOCK_ALONE, (uint64_t)i, 1) == 0)
			return i;
	}
	*joins = true;
	return shared_lock(fd, LOCK_SHARED, LAST_SLOT, 1) == 0 ? LAST_SLOT : BAD_SLOT;
}

static void raise_top(struct region *region, uint32_t top)
{
	uint32_t seen = __atomic_load_n(&region->header.top, __ATOMIC_SEQ_CST);

	while (seen < top && !__atomic_compare_exchange_n(&region->header.top, &seen, top, false, __ATOMIC_SEQ_CST,
							  __ATOMIC_SEQ_CST))
		;
}

static uint64_t new_key(struct region *region)
{
	uint32_t serial = __atomic_add_fetch(&region->header.serial, 1, __ATOMIC_SEQ_CST);

	return (uint64_t)(shared_process_id() & 0x7fffffff) << 32 | (serial ? serial : 1);
}

void region_file_publish(struct region_view *view, const uint64_t *held)
{
	struct region *region = view->region;
	uint32_t index = (uint32_t)(view->slot - region->slots);

	__atomic_store_n(&region->header.magic, MAGIC, __ATOMIC_SEQ_CST);
	__atomic_store_n(&region->header.slot_count, REGION_SLOTS, __ATOMIC_SEQ_CST);
	__atomic_store_n(&view->slot->key, view->key | KEY_INIT, __ATOMIC_SEQ_CST);
	for (int i = 0; held && i < REGION_DEVICES; i++) {
		__atomic_store_n(&view->slot->cells[i].used, held[i], __ATOMIC_SEQ_CST);
		__atomic_store_n(&view->slot->cells[i].pending, 0, __ATOMIC_SEQ_CST);
	}
	raise_top(region, index + 1);
	__atomic_store_n(&view->slot->key, view->key, __ATOMIC_SEQ_CST);
}

bool region_file_is_intact(const struct region_view *view)
{
	return __atomic_load_n(&view->slot->key, __ATOMIC_RELAXED) == view->key &&
	       __atomic_load_n(&view->region->header.magic, __ATOMIC_RELAXED) == MAGIC;
}

/* The first one in the shared slot sets it up under a lock of its own, and then lets others in. */
static enum occupied enter_slot(struct region_view *view, int fd, int index, bool joins)
{
	static const uint64_t nothing[REGION_DEVICES];

	view->slot = &view->region->slots[index];
	if (joins) {
		view->key = __atomic_load_n(&view->slot->key, __ATOMIC_SEQ_CST);
		return view->key && !(view->key & KEY_INIT) ? OCCUPIED : BUSY;
	}
	view->key = new_key(view->region);
	region_file_publish(view, nothing);
	return index != LAST_SLOT || shared_lock(fd, LOCK_SHARED, LAST_SLOT, 1) == 0 ? OCCUPIED : BUSY;
}

static enum occupied occupy(struct region_view *view, int fd, bool forks, int *index)
{
	bool joins;
	enum occupied result = make_valid(fd);

	if (result != OCCUPIED)
		return result;
	*index = lock_slot(fd, &joins);
	/* From here on nobody makes the file anew. */
	if (*index == BAD_SLOT || !header_is_valid(fd))
		return BUSY;
	view->region = shared_map(fd, sizeof(struct region), forks);
	if (!view->region)
		return UNUSABLE;
	result = enter_slot(view, fd, *index, joins);
	if (result != OCCUPIED)
		sys_munmap(view->region, sizeof(struct region));
	return result;
}

/* On file systems that map another file in place of the opened one, such as overlayfs, the lock is gone with the
 * descriptor. */
static enum occupied see_lock_last(const struct region_view *view, const char *path, int index)
{
	struct file_identity seen;
	long fd = shared_open(path, false);
	bool lasts = false;

	if (fd < 0)
		return shared_lacks_descriptor(fd) ? NO_DESCRIPTOR : UNUSABLE;
	if (shared_identity((int)fd, "", &seen) && seen.device == view->file.device && seen.inode == view->file.inode)
		lasts = shared_is_locked((int)fd, (uint64_t)index);
	sys_close((int)fd);
	return lasts ? OCCUPIED : UNUSABLE;
}

static enum occupied try_to_join(struct region_view *view, const char *path, bool forks, const char **fault)
{
	enum occupied result = UNUSABLE;
	long fd = shared_open(path, true);
	int index = BAD_SLOT;

	*fault = "cannot be opened for writing";
	if (fd < 0)
		return shared_lacks_descriptor(fd) ? NO_DESCRIPTOR : UNUSABLE;
	*fault = "is no file, or there is no room for it";
	if (shared_identity((int)fd, "", &view->file) && view->file.is_regular)
		result = occupy(view, (int)fd, forks, &index);
	sys_close((int)fd);
	if (result != OCCUPIED)
		return result;
	*fault = "has been replaced, or its file system does not keep locks";
	result = see_lock_last(view, path, index);
	if (result != OCCUPIED)
		sys_munmap(view->region, sizeof(struct region));
	return result;
}

enum joined region_file_join(struct region_view *view, const char *path, bool forks, const char **fault)
{
	enum occupied result = BUSY;

	for (int attempt = 0; attempt < PATIENCE && result == BUSY; attempt++) {
		*view = (struct region_view){0};
		result = try_to_join(view, path, forks, fault);
		if (result == BUSY)
			shared_pause();
	}
	if (result == OCCUPIED)
		return JOINED;
	*view = (struct region_view){0};
	if (result == BUSY)
		*fault = "is damaged or of another version, and in use";
	return result == NO_DESCRIPTOR ? JOINED_LATER : NEVER_JOINED;
}

bool region_file_private(struct region_view *view)
{
	static const uint64_t nothing[REGION_DEVICES];

	*view = (struct region_view){.region = sys_map(sizeof(struct region)), .is_private = true};
	if (!view->region)
		return false;
	view->slot = view->region->slots;
	view->key = new_key(view->region);
	region_file_publish(view, nothing);
	return true;
}

static bool holds_anything(const struct slot *slot)
{
	uint64_t any = 0;

	for (int i = 0; i < REGION_DEVICES; i++)
		any |= slot->cells[i].used | slot->cells[i].pending;
	return any != 0;
}

/* A slot that is taken over at this very moment has another key by then, and stays. */
static bool reap_slot(struct slot *slot, int fd, uint64_t index)
{
	uint64_t key = __atomic_load_n(&slot->key, __ATOMIC_SEQ_CST);
	bool held;

	if (!key || shared_is_locked(fd, index))
		return false;
	held = holds_anything(slot);
	return __atomic_compare_exchange_n(&slot->key, &key, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) && held;
}

bool region_file_reap(const struct region_view *view, const char *path)
{
	struct file_identity seen;
	bool freed = false;
	long fd = view->is_private ? -1 : shared_open(path, false);

	if (fd < 0)
		return false;
	/* In a file that took its place nobody's locks tell about these slots. */
	if (shared_identity((int)fd, "", &seen) && seen.device == view->file.device && seen.inode == view->file.inode) {
		for (uint64_t i = 0; i < REGION_SLOTS; i++) {
			if (&view->region->slots[i] != view->slot)
				freed |= reap_slot(&view->region->slots[i], (int)fd, i);
		}
	}
	sys_close((int)fd);
	return freed;
}
