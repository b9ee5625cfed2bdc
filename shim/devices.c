/* Names of GPUs: see devices.h.
 *
 * A GPU is known by its PCI address together with its UUID: the partitions of one GPU have the same address, and before
 * Linux 6.17 the same UUID; then they are counted as one GPU, which holds too much rather than too little. Where HIP
 * gives neither, its own number has to do. */
#include "devices.h"

#include "log.h"
#include "region.h"
#include "sys.h"

enum { COPIES = 16, ADDRESS_SIZE = 32, UUID_SIZE = 16 };

/* The numbers plus one. A forked child may get another shared file, with other numbers, so it asks again. */
struct numbers {
	uint8_t plus_one[COPIES][REGION_DEVICES];
};
static struct numbers *numbers;

bool devices_init(void)
{
	if (!numbers)
		numbers = sys_map_wiped_on_fork(sizeof(*numbers));
	return numbers != NULL;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_on(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
	return hash;
}

/* Without the function, for which HIP 5 always says 0, and without what Linux puts above the bus. */
uint64_t devices_id(const struct device_name *name)
{
	uint32_t location = name->location & 0xfff8;
	uint64_t hash = 0xcbf29ce484222325ULL;

	hash = hash_on(hash, &name->domain, sizeof(name->domain));
	hash = hash_on(hash, &location, sizeof(location));
	hash = hash_on(hash, &name->uuid, sizeof(name->uuid));
	return hash ? hash : 1;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

uint64_t devices_uuid(const char *digits)
{
	uint64_t number = 0;

	for (int i = 0; i < UUID_SIZE; i++) {
		if (digit_of(digits[i]) < 0)
			return 0;
		number = number << 4 | (unsigned)digit_of(digits[i]);
	}
	return number;
}

/* The number before the next separator, to which `text` is moved on. */
static uint32_t take_number(const char **text)
{
	uint32_t number = 0;

	for (; digit_of(**text) >= 0; (*text)++)
		number = number << 4 | (unsigned)digit_of(**text);
	if (**text)
		(*text)++;
	return number;
}

/* HIP writes 0000:83:00.0. */
static void read_address(const char *address, struct device_name *name)
{
	uint32_t bus;

	name->domain = take_number(&address);
	bus = take_number(&address);
	name->location = bus << 8 | take_number(&address) << 3;
}

/* HIP gives the 16 characters that ROCr has behind GPU-; what is none of that is told apart by what it is. */
static uint64_t read_uuid(const char *uuid)
{
	uint64_t number = devices_uuid(uuid);
	uint64_t halves[2];

	if (number || text_starts_with(uuid, "XX"))
		return number;
	memcpy(halves, uuid, sizeof(halves));
	return halves[0] || halves[1] ? hash_on(0, halves, sizeof(halves)) : 0;
}

static bool is_missing(int code)
{
	return code == HIP_NO_DEVICE || code == HIP_INVALID_DEVICE;
}

/* 0 when there is no such GPU. */
static uint64_t identify(struct hip_copy *hip, int ordinal)
{
	char address[ADDRESS_SIZE] = "";
	char uuid[UUID_SIZE + 1] = "";
	struct device_name name = {0};
	int code = hip->real.hipDeviceGetPCIBusId ? hip->real.hipDeviceGetPCIBusId(address, ADDRESS_SIZE, ordinal)
						  : HIP_OUT_OF_MEMORY;
	bool named = code == HIP_SUCCESS && address[0];

	if (is_missing(code))
		return 0;
	address[ADDRESS_SIZE - 1] = '\0';
	if (named)
		read_address(address, &name);
	if (hip->real.hipDeviceGetUuid && hip->real.hipDeviceGetUuid(uuid, ordinal) == HIP_SUCCESS) {
		name.uuid = read_uuid(uuid);
		named = true;
	}
	if (!named) {
		LOG_WARN_ONCE(LOG_TEXT("HIP names no GPU, so they are told apart by HIP's numbers"));
		return (uint64_t)ordinal + 1;
	}
	return devices_id(&name);
}

int devices_number(struct hip_copy *hip, unsigned ordinal)
{
	uint8_t *known;
	uint64_t id;
	int number;

	if (ordinal >= REGION_DEVICES || hip->index >= COPIES)
		return -1;
	known = &numbers->plus_one[hip->index][ordinal];
	if (__atomic_load_n(known, __ATOMIC_RELAXED))
		return __atomic_load_n(known, __ATOMIC_RELAXED) - 1;
	id = identify(hip, (int)ordinal);
	number = id ? region_device(id) : -1;
	if (number >= 0)
		__atomic_store_n(known, (uint8_t)(number + 1), __ATOMIC_RELAXED);
	return number;
}

void devices_forget(const struct hip_copy *hip)
{
	if (hip->index < COPIES)
		memset(numbers->plus_one[hip->index], 0, sizeof(numbers->plus_one[hip->index]));
}
