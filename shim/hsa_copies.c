/* One row of entry points per copy, as in copies.c: see hsa_copies.h. */
#include "hsa_copies.h"

#include "books.h"
#include "copies.h"
#include "log.h"
#include "nest.h"
#include "sys.h"

#define COPIES(ROW) ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7)

enum hook {
#define HOOK_INDEX(name, parameters, arguments) HOOK_##name,
	HSA_HOOKS(HOOK_INDEX)
#undef HOOK_INDEX
	HOOK_COUNT
};

enum {
#define COUNT_COPY(index) +1
	COPY_COUNT = COPIES(COUNT_COPY)
#undef COUNT_COPY
};

static struct hsa_copy copies[COPY_COUNT];

static const char *const hook_names[HOOK_COUNT] = {
#define HOOK_NAME(name, parameters, arguments) #name,
	HSA_HOOKS(HOOK_NAME)
#undef HOOK_NAME
};

/* The runtime hands out lists by calling the program back, and what a callback calls last returns to the runtime. It asks
 * none of its own functions in this way, only the thunk's. */
static bool calls_back(const struct hsa_copy *copy)
{
	return copy->real.hsa_iterate_agents;
}

static bool is_runtime(const struct hsa_copy *asked, const void *caller)
{
	for (int i = 0; i < COPY_COUNT; i++) {
		if (copies[i].in_use && elf_span_covers(&copies[i].span, caller))
			return &copies[i] != asked || !calls_back(asked);
	}
	return copies_cover(caller);
}

/* True when the call is the program's own; then nest_leave has to follow. */
static bool enter(const struct hsa_copy *asked, const void *caller, const void *frame)
{
	return !is_runtime(asked, caller) && nest_enter_from(frame);
}

#define ENTRY_POINT(index, name, parameters, arguments)                 \
	static int entry_##name##_##index(parameters)                    \
	{                                                                \
		struct hsa_copy *hsa = &copies[index];                   \
		int code;                                                \
                                                                         \
		if (!enter(hsa, __builtin_return_address(0), __builtin_frame_address(0))) \
			return hsa->real.name(arguments);                \
		code = hook_##name(hsa, arguments);                      \
		nest_leave();                                            \
		return code;                                             \
	}
#define ENTRY_0(name, parameters, arguments) ENTRY_POINT(0, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_1(name, parameters, arguments) ENTRY_POINT(1, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_2(name, parameters, arguments) ENTRY_POINT(2, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_3(name, parameters, arguments) ENTRY_POINT(3, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_4(name, parameters, arguments) ENTRY_POINT(4, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_5(name, parameters, arguments) ENTRY_POINT(5, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_6(name, parameters, arguments) ENTRY_POINT(6, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRY_7(name, parameters, arguments) ENTRY_POINT(7, name, PARAMETERS(parameters), ARGUMENTS(arguments))
#define ENTRIES_OF_COPY(index) HSA_HOOKS(ENTRY_##index)
COPIES(ENTRIES_OF_COPY)

#define HOOK_ADDRESS_0(name, parameters, arguments) (const void *)entry_##name##_0,
#define HOOK_ADDRESS_1(name, parameters, arguments) (const void *)entry_##name##_1,
#define HOOK_ADDRESS_2(name, parameters, arguments) (const void *)entry_##name##_2,
#define HOOK_ADDRESS_3(name, parameters, arguments) (const void *)entry_##name##_3,
#define HOOK_ADDRESS_4(name, parameters, arguments) (const void *)entry_##name##_4,
#define HOOK_ADDRESS_5(name, parameters, arguments) (const void *)entry_##name##_5,
#define HOOK_ADDRESS_6(name, parameters, arguments) (const void *)entry_##name##_6,
#define HOOK_ADDRESS_7(name, parameters, arguments) (const void *)entry_##name##_7,
#define ADDRESSES_OF_COPY(index) {HSA_HOOKS(HOOK_ADDRESS_##index)},
static const void *const entry_points[COPY_COUNT][HOOK_COUNT] = {COPIES(ADDRESSES_OF_COPY)};

bool hsa_copies_is_one(const struct link_map *map, struct elf_image *image)
{
	if (elf_is_named(map, "libhsa-runtime64"))
		return elf_open(map, image) && elf_function(image, "hsa_init");
	return elf_is_named(map, "libhsakmt") && elf_open(map, image) && elf_function(image, "hsaKmtOpenKFD");
}

static const void *choose_entry_point(void *context, const char *name, const void *real)
{
	const struct hsa_copy *copy = context;

	(void)real;
	if (!text_starts_with(name, "hsa"))
		return NULL;
	for (int i = 0; i < HOOK_COUNT; i++) {
		if (text_equal(name, hook_names[i]))
			return entry_points[copy - copies][i];
	}
	return NULL;
}

static struct hsa_copy *take_free_copy(void)
{
	for (int i = 0; i < COPY_COUNT; i++) {
		if (!copies[i].in_use)
			return &copies[i];
	}
	return NULL;
}

struct hsa_copy *hsa_copies_add(const struct elf_image *image)
{
	struct hsa_copy *copy = books_open() ? take_free_copy() : NULL;

	if (!copy) {
		LOG_WARN_ONCE(LOG_TEXT("no room to account for one more HSA runtime: its memory is not counted"));
		return NULL;
	}
#define READ_REAL(name, parameters, arguments) copy->real.name = (int (*)(parameters))elf_function(image, #name);
	HSA_HOOKS(READ_REAL)
	HSA_CALLED(READ_REAL)
#undef READ_REAL
	copy->span = elf_span(image);
	copy->in_use = true;
	if (!elf_redirect(image, choose_entry_point, copy))
		LOG_AT(LOG_INFO, LOG_TEXT("symbols cannot be redirected, binding by the loader's call instead"));
	return copy;
}

/* As with HIP, the real functions stay readable. */
void hsa_copies_remove(struct hsa_copy *copy)
{
	copy->in_use = false;
}

struct hsa_copy *hsa_copies_find(uintptr_t cookie)
{
	struct hsa_copy *copy = (struct hsa_copy *)cookie;

	return copy >= copies && copy < copies + COPY_COUNT ? copy : NULL;
}

const void *hsa_copies_bind(struct hsa_copy *copy, const char *name, const void *address)
{
	const void *entry = choose_entry_point(copy, name, address);

	return entry ? entry : address;
}
