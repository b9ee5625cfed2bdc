/* One row of entry points per copy, generated from the table of hooks: see copies.h.
 *
 * They are plain functions, not code written at run time: that would need memory which is both writable and executable,
 * and hardened systems forbid it. So their number is fixed. */
#include "copies.h"

#include "books.h"
#include "devices.h"
#include "log.h"
#include "pools.h"
#include "sys.h"

#define COPIES(ROW) ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)

enum hook {
#define HOOK_INDEX(name, parameters, arguments) HOOK_##name,
	HIP_HOOKS(HOOK_INDEX)
#undef HOOK_INDEX
	HOOK_COUNT
};

enum {
#define COUNT_COPY(index) +1
	COPY_COUNT = COPIES(COUNT_COPY)
#undef COUNT_COPY
};

/* The last one has no entry points: what does not fit elsewhere is bound to `refuse`. */
static struct hip_copy copies[COPY_COUNT + 1];
static struct hip_copy *const refused = &copies[COPY_COUNT];

static const char *const hook_names[HOOK_COUNT] = {
#define HOOK_NAME(name, parameters, arguments) #name,
	HIP_HOOKS(HOOK_NAME)
#undef HOOK_NAME
};

#define ENTRY_POINT(index, name, parameters, arguments) \
	static int entry_##name##_##index(parameters)    \
	{                                                \
		return hook_##name(&copies[index], arguments); \
	}
#define ENTRY_0(name, parameters, arguments) ENTRY_POINT(0, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_1(name, parameters, arguments) ENTRY_POINT(1, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_2(name, parameters, arguments) ENTRY_POINT(2, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_3(name, parameters, arguments) ENTRY_POINT(3, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_4(name, parameters, arguments) ENTRY_POINT(4, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_5(name, parameters, arguments) ENTRY_POINT(5, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_6(name, parameters, arguments) ENTRY_POINT(6, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_7(name, parameters, arguments) ENTRY_POINT(7, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRIES_OF_COPY(index) HIP_HOOKS(ENTRY_##index)
COPIES(ENTRIES_OF_COPY)

#define HOOK_ADDRESS_0(name, parameters, arguments) (const void *)entry_##name##_0,
#define HOOK_ADDRESS_1(name, parameters, arguments) (const void *)entry_##name##_1,
#define HOOK_ADDRESS_2(name, parameters, arguments) (const void *)entry_##name##_2,
#define HOOK_ADDRESS_3(name, parameters, arguments) (const void *)entry_##name##_3,
#define HOOK_ADDRESS_4(name, parameters, arguments) (const void *)entry_##name##_4,
#define HOOK_ADDRESS_5(name, parameters, arguments) (const void *)entry_##name##_5,
#define HOOK_ADDRESS_6(name, parameters, arguments) (const void *)entry_##name##_6,
#define HOOK_ADDRESS_7(name, parameters, arguments) (const void *)entry_##name##_7,
#define ADDRESSES_OF_COPY(index) {HIP_HOOKS(HOOK_ADDRESS_##index)},
static const void *const entry_points[COPY_COUNT][HOOK_COUNT] = {COPIES(ADDRESSES_OF_COPY)};

/* Stands in for every hooked function of a copy that cannot be accounted. */
static int refuse(void)
{
	return HIP_OUT_OF_MEMORY;
}

/* The offset of a hook in the table, or -1. */
static int hook_index(const char *name)
{
	if (!text_starts_with(name, "hip"))
		return -1;
	for (int i = 0; i < HOOK_COUNT; i++) {
		if (text_equal(name, hook_names[i]))
			return i;
	}
	return -1;
}

bool copies_is_hip(const struct link_map *map, struct elf_image *image)
{
	return elf_is_named(map, "libamdhip64") && elf_open(map, image) && elf_function(image, "hipMalloc") &&
	       elf_function(image, "hipGetDeviceCount");
}

struct hip_copy *copies_find(uintptr_t cookie)
{
	struct hip_copy *copy = (struct hip_copy *)cookie;

	return copy >= copies && copy <= refused ? copy : NULL;
}

bool copies_cover(const void *address)
{
	for (const struct hip_copy *copy = copies; copy <= refused; copy++) {
		if (copy->in_use && elf_span_covers(&copy->span, address))
			return true;
	}
	return false;
}

static const void *choose_entry_point(void *context, const char *name, const void *real)
{
	const struct hip_copy *copy = context;
	int hook = hook_index(name);

	(void)real;
	if (hook < 0)
		return NULL;
	return copy == refused ? (const void *)refuse : entry_points[copy - copies][hook];
}

const void *copies_bind(struct hip_copy *copy, const char *name, const void *address)
{
	const void *entry = choose_entry_point(copy, name, address);

	return entry ? entry : address;
}

const void *copies_entry_of(const struct hip_copy *copy, const void *real)
{
#define COMPARE(name, parameters, arguments)                          \
	if (real && real == (const void *)copy->real.name)            \
		return copies_bind((struct hip_copy *)copy, #name, real);
	HIP_HOOKS(COMPARE)
#undef COMPARE
	return real;
}

static struct hip_copy *take_free_copy(void)
{
	for (int i = 0; i < COPY_COUNT; i++) {
		if (!copies[i].in_use)
			return &copies[i];
	}
	return refused;
}

static void read_real_functions(struct hip_copy *copy, const struct elf_image *image)
{
#define READ_REAL(name, parameters, arguments) copy->real.name = (int (*)(parameters))elf_function(image, #name);
	HIP_HOOKS(READ_REAL)
	HIP_CALLED(READ_REAL)
#undef READ_REAL
}

struct hip_copy *copies_add(const struct elf_image *image)
{
	struct hip_copy *copy = books_open() ? take_free_copy() : refused;

	if (copy == refused) {
		LOG_WARN_ONCE(LOG_TEXT("no room to account for one more libamdhip64: it may not allocate"));
	} else {
		devices_forget(copy);
		pools_forget(copy);
	}
	copy->index = (unsigned)(copy - copies);
	read_real_functions(copy, image);
	copy->span = elf_span(image);
	copy->in_use = true;
	if (!elf_redirect(image, choose_entry_point, copy))
		LOG_AT(LOG_INFO, LOG_TEXT("symbols cannot be redirected, binding by the loader's call instead"));
	return copy;
}

/* The real functions stay readable: at the end of a process HIP may be called after its audit object was closed. */
void copies_remove(struct hip_copy *copy)
{
	copy->in_use = false;
}
