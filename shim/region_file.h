/* The layout of the shared file, and how a process gets a slot of it: see region.h. */
#ifndef AMVGPU_REGION_FILE_H
#define AMVGPU_REGION_FILE_H

#include "region.h"
#include "sys_shared.h"

/* The tests build a small one, to see it full. */
#ifndef REGION_SLOTS
#define REGION_SLOTS 256
#endif

/* The last slot is shared by all processes that find no other; it lives until the last of them is gone. */
enum { LAST_SLOT = REGION_SLOTS - 1 };

struct cell {
	uint64_t pending; /* announced; signed, and negative only after somebody has overwritten the file */
	uint64_t used;
};

#define KEY_INIT ((uint64_t)1 << 63)

struct slot {
	uint64_t key; /* process id << 32 | serial number; 0 when it is free; KEY_INIT: being set up, nothing counts yet */
	uint64_t unused[7];
	struct cell cells[REGION_DEVICES];
} __attribute__((aligned(64)));

struct region_header {
	uint64_t magic; /* with the version of the layout */
	uint64_t slot_count;
	uint32_t serial;
	uint32_t top; /* all slots that were ever used are below */
	uint64_t unused[5];
	uint64_t devices[REGION_DEVICES]; /* the id of each GPU, or 0 */
};

struct region {
	struct region_header header;
	struct slot slots[REGION_SLOTS];
};

/* One process' view of it. */
struct region_view {
	struct region *region;
	struct slot *slot;
	uint64_t key;
	bool is_private; /* not shared with any other process */
	struct file_identity file;
};

/* Later: this process has as many files open as it may. Never: `fault` says why. */
enum joined { JOINED, JOINED_LATER, NEVER_JOINED };
enum joined region_file_join(struct region_view *view, const char *path, bool forks, const char **fault);
/* A region that no other process sees. */
bool region_file_private(struct region_view *view);

/* Sets up the slot anew for its owner, with these bytes in use, and repairs the header. NULL: in the shared slot, whose
 * bytes nobody knows. */
void region_file_publish(struct region_view *view, const uint64_t *held);
/* Has somebody overwritten the slot or the header? */
bool region_file_is_intact(const struct region_view *view);

/* Frees the slots of processes that are gone; true when they held or announced anything. */
bool region_file_reap(const struct region_view *view, const char *path);

#endif
