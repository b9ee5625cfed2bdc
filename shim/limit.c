/* Parsing of the limit: see limit.h. */
#include "limit.h"

#include <stddef.h>

#include "env.h"
#include "log.h"
#include "sys.h"

#define LIMIT_NAME "HIP_DEVICE_MEMORY_LIMIT"

#define NUMBERED(number) {.prefix = LIMIT_NAME "_" #number "="}

enum { ALL, FIRST_GPU, NUMBERED_GPUS = 16, LIMITS = FIRST_GPU + NUMBERED_GPUS, LOG = LIMITS, REGION, MANAGED, HSA, SETTINGS };

static struct env_variable settings[SETTINGS] = {
	[ALL] = {.prefix = LIMIT_NAME "="},
	[FIRST_GPU] = NUMBERED(0), NUMBERED(1), NUMBERED(2), NUMBERED(3), NUMBERED(4), NUMBERED(5), NUMBERED(6), NUMBERED(7),
	NUMBERED(8), NUMBERED(9), NUMBERED(10), NUMBERED(11), NUMBERED(12), NUMBERED(13), NUMBERED(14), NUMBERED(15),
	[LOG] = {.prefix = "AMVGPU_LOG="},
	[REGION] = {.prefix = "AMVGPU_REGION="},
	[MANAGED] = {.prefix = "AMVGPU_MANAGED="},
	[HSA] = {.prefix = "AMVGPU_HSA="},
};

static bool is_set;
static bool is_faulty[LIMITS];
static uint64_t bytes_of[LIMITS];

/* The suffix as a shift of the number, or -1. */
static int suffix_shift(const char *suffix)
{
	static const char letters[] = "kKmMgG";

	if (!*suffix)
		return 0;
	for (int i = 0; letters[i]; i++) {
		if (*suffix == letters[i] && !suffix[1])
			return 10 * (i / 2 + 1);
	}
	return -1;
}

static bool parse(const char *text, uint64_t *bytes)
{
	uint64_t number = 0;
	int shift;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
			return false;
	}
	shift = suffix_shift(text);
	if (shift < 0 || number == 0 || number > UINT64_MAX >> shift)
		return false;
	*bytes = number << shift;
	return true;
}

static void read_limit(int index)
{
	const struct env_variable *setting = &settings[index];

	bytes_of[index] = UINT64_MAX;
	if (setting->state == ENV_ABSENT)
		return;
	is_set = true;
	is_faulty[index] = setting->state != ENV_PRESENT || !parse(setting->value, &bytes_of[index]);
	bytes_of[index] = is_faulty[index] ? 0 : bytes_of[index] & -LIMIT_PAGE;
}

void limit_init(void)
{
	env_read(settings, SETTINGS);
	if (settings[LOG].state == ENV_PRESENT)
		log_set_level(settings[LOG].value);
	for (int i = 0; i < LIMITS; i++)
		read_limit(i);
}

bool limit_is_set(void)
{
	return is_set;
}

uint64_t limit_bytes(unsigned device)
{
	uint64_t own = device < NUMBERED_GPUS ? bytes_of[FIRST_GPU + device] : UINT64_MAX;

	return own < bytes_of[ALL] ? own : bytes_of[ALL];
}

static void warn_about(const struct env_variable *setting)
{
	char name[sizeof(LIMIT_NAME "_15")];
	size_t length = text_length(setting->prefix) - 1;

	memcpy(name, setting->prefix, length);
	name[length] = '\0';
	LOG_WARN_ONCE(LOG_TEXT(name), LOG_TEXT("='"), LOG_TEXT(setting->value),
		      LOG_TEXT("' is no memory size such as 16384m: every allocation is refused"));
}

void limit_warn_if_faulty(void)
{
	if (settings[ALL].state == ENV_UNREADABLE) {
		LOG_WARN_ONCE(LOG_TEXT("/proc/self/environ cannot be read, so the GPU memory limit is not known: "
				       "every allocation is refused"));
		return;
	}
	for (int i = 0; i < LIMITS; i++) {
		if (is_faulty[i]) {
			warn_about(&settings[i]);
			return;
		}
	}
}

uint64_t limit_round_up(uint64_t bytes)
{
	return bytes > UINT64_MAX - LIMIT_PAGE ? UINT64_MAX : (bytes + LIMIT_PAGE - 1) & -LIMIT_PAGE;
}

const char *limit_region_folder(void)
{
	return settings[REGION].state == ENV_PRESENT ? settings[REGION].value : NULL;
}

bool limit_counts_managed(void)
{
	return settings[MANAGED].state != ENV_PRESENT || !text_equal(settings[MANAGED].value, "0");
}

bool limit_counts_hsa(void)
{
	return settings[HSA].state == ENV_PRESENT && text_equal(settings[HSA].value, "1");
}
