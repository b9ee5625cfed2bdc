/* Parsing of the limit: see limit.h. */
#include "limit.h"

#include "env.h"
#include "log.h"

#define LIMIT_NAME "HIP_DEVICE_MEMORY_LIMIT"

static struct env_variable settings[] = {
	{.prefix = LIMIT_NAME "="},
	{.prefix = "AMVGPU_LOG="},
};
static const struct env_variable *const limit_setting = &settings[0];
static const struct env_variable *const log_setting = &settings[1];

static bool is_set;
static bool is_faulty;
static uint64_t bytes_per_device;

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

void limit_init(void)
{
	env_read(settings, sizeof(settings) / sizeof(settings[0]));
	if (log_setting->state == ENV_PRESENT)
		log_set_level(log_setting->value);
	is_set = limit_setting->state != ENV_ABSENT;
	if (is_set)
		is_faulty = limit_setting->state != ENV_PRESENT || !parse(limit_setting->value, &bytes_per_device);
}

bool limit_is_set(void)
{
	return is_set;
}

uint64_t limit_bytes(unsigned device)
{
	(void)device;
	return bytes_per_device;
}

void limit_warn_if_faulty(void)
{
	if (!is_faulty)
		return;
	if (limit_setting->state == ENV_UNREADABLE)
		LOG_WARN_ONCE(LOG_TEXT("/proc/self/environ cannot be read, so the GPU memory limit is not known: "
				       "every allocation is refused"));
	else
		LOG_WARN_ONCE(LOG_TEXT(LIMIT_NAME "='"), LOG_TEXT(limit_setting->value),
			      LOG_TEXT("' is no memory size such as 16384m: every allocation is refused"));
}
