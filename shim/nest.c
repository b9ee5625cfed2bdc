/* Marks in a table keyed by the thread pointer: see nest.h.
 *
 * The table is made of groups, whose marks fill one cache line. A mark goes to its thread's home group; when that is full,
 * to any other one, and the home group remembers how many of its marks are elsewhere. Usually one cache line is searched.
 * The marks are wiped in a forked child, where a new thread may get the thread pointer of one that exists in the parent
 * only. */
#include "nest.h"

#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "sys.h"

/* The tests build a table that is small enough to be full. */
#ifndef NEST_GROUP_BITS
#define NEST_GROUP_BITS 9
#endif
enum { GROUP_BITS = NEST_GROUP_BITS, GROUPS = 1 << GROUP_BITS, MARKS = 7 };

/* Where a thread went into its outermost hook: the hook's frame, and what it returns to, which lies right above. */
struct place {
	const uintptr_t *frame;
	uintptr_t back;
};
enum { BACK_IN_FRAME = 1 };

struct group {
	uintptr_t marks[MARKS]; /* a thread pointer, or 0 */
	uint64_t elsewhere;     /* marks of threads at home here that lie in other groups */
	struct place places[MARKS];
} __attribute__((aligned(64)));

static struct group *groups;

bool nest_init(void)
{
	if (!groups)
		groups = sys_map_wiped_on_fork(GROUPS * sizeof(*groups));
	return groups != NULL;
}

static struct group *home_of(uintptr_t thread)
{
	return &groups[((uint64_t)thread * 0x9E3779B97F4A7C15ULL) >> (64 - GROUP_BITS)];
}

static uintptr_t *find_in(struct group *group, uintptr_t thread)
{
	for (int i = 0; i < MARKS; i++) {
		if (__atomic_load_n(&group->marks[i], __ATOMIC_RELAXED) == thread)
			return &group->marks[i];
	}
	return NULL;
}

static uintptr_t *find(struct group *home, uintptr_t thread)
{
	uintptr_t *mark = find_in(home, thread);

	/* Only the thread itself ever sets or clears its mark, so the counter is never 0 while its mark is elsewhere. */
	if (mark || !__atomic_load_n(&home->elsewhere, __ATOMIC_RELAXED))
		return mark;
	for (int i = 0; i < GROUPS && !mark; i++)
		mark = find_in(&groups[i], thread);
	return mark;
}

/* Only the thread itself looks at the place of its mark. */
static struct place *place_of(const uintptr_t *mark)
{
	size_t index = ((uintptr_t)mark - (uintptr_t)groups) / sizeof(*groups);

	return &groups[index].places[mark - groups[index].marks];
}

static void note(uintptr_t *mark, const uintptr_t *frame)
{
	*place_of(mark) = (struct place){frame, frame[BACK_IN_FRAME]};
}

/* Stacks grow down, so the frame of a hook that is still running lies above. */
static bool is_alive(const struct place *place, const uintptr_t *frame)
{
	return place->frame > frame && place->frame[BACK_IN_FRAME] == place->back;
}

static bool mark_in(struct group *group, uintptr_t thread, const uintptr_t *frame)
{
	for (int i = 0; i < MARKS; i++) {
		uintptr_t expected = 0;

		if (__atomic_load_n(&group->marks[i], __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&group->marks[i], &expected, thread, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			note(&group->marks[i], frame);
			return true;
		}
	}
	return false;
}

/* When thousands of threads are inside HIP at once the thread stays unmarked: its inner calls are then counted too,
 * which holds too much rather than too little. */
static void set_mark(struct group *home, uintptr_t thread, const uintptr_t *frame)
{
	if (mark_in(home, thread, frame))
		return;
	__atomic_fetch_add(&home->elsewhere, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < GROUPS; i++) {
		if (&groups[i] != home && mark_in(&groups[i], thread, frame))
			return;
	}
	__atomic_fetch_sub(&home->elsewhere, 1, __ATOMIC_RELAXED);
}

bool nest_enter_from(const void *frame)
{
	uintptr_t thread = arch_thread_pointer();
	struct group *home = home_of(thread);
	uintptr_t *mark = find(home, thread);

	if (mark && is_alive(place_of(mark), frame))
		return false;
	if (mark)
		note(mark, frame);
	else
		set_mark(home, thread, frame);
	return true;
}

void nest_leave(void)
{
	uintptr_t thread = arch_thread_pointer();
	struct group *home = home_of(thread);
	uintptr_t *mark = find(home, thread);

	if (!mark)
		return;
	__atomic_store_n(mark, 0, __ATOMIC_RELAXED);
	if (mark < home->marks || mark >= home->marks + MARKS)
		__atomic_fetch_sub(&home->elsewhere, 1, __ATOMIC_RELAXED);
}
