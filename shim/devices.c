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
static uint64_t hash_on(uint64_t hash, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
	return hash;
}

static bool is_missing(int code)
{
	return code == HIP_NO_DEVICE || code == HIP_INVALID_DEVICE;
}

/* 0 when there is no such GPU. */
static uint64_t identify(struct hip_copy *hip, int ordinal)
{
	char address[ADDRESS_SIZE] = "";
	char uuid[UUID_SIZE] = "";
	uint64_t hash = 0xcbf29ce484222325ULL;
	int code = hip->real.hipDeviceGetPCIBusId ? hip->real.hipDeviceGetPCIBusId(address, ADDRESS_SIZE, ordinal)
						  : HIP_OUT_OF_MEMORY;
	bool named = code == HIP_SUCCESS && address[0];

	if (is_missing(code))
		return 0;
	address[ADDRESS_SIZE - 1] = '\0';
	if (hip->real.hipDeviceGetUuid && hip->real.hipDeviceGetUuid(uuid, ordinal) == HIP_SUCCESS)
		named = true;
	else
		memset(uuid, 0, sizeof(uuid));
	if (!named) {
		LOG_WARN_ONCE(LOG_TEXT("HIP names no GPU, so they are told apart by HIP's numbers"));
		return (uint64_t)ordinal + 1;
	}
	hash = hash_on(hash_on(hash, address, text_length(address)), uuid, sizeof(uuid));
	return hash ? hash : 1;
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
	else if (id)
		LOG_WARN_ONCE(LOG_TEXT("too many GPUs to count their memory: some may not be allocated on"));
	return number;
}

void devices_forget(const struct hip_copy *hip)
{
	if (hip->index < COPIES)
		memset(numbers->plus_one[hip->index], 0, sizeof(numbers->plus_one[hip->index]));
}
