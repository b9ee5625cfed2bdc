/* Memory that a program takes from the HSA runtime or from its thunk, without HIP, and what these say of a GPU's memory.
 * Everything global on a GPU counts, coarse-grained or not; memory of the host does not. */
#include "hsa_devices.h"
#include "ledger.h"
#include "limit.h"
#include "log.h"
#include "region.h"
#include "sys.h"

enum {
	AGENT_MEMORY_AVAILABLE = 0xA015,
	MEMORY_SIZE = 2, /* of a pool or region */
	REGION_LARGEST = 4,
	POOL_LARGEST = 16,
};

static bool reserve(const struct hsa_place *place, uint64_t bytes)
{
	uint64_t limit = limit_bytes(place->ordinal);

	if (place->device >= 0 && ledger_reserve((unsigned)place->device, limit_round_up(bytes), limit))
		return true;
	LOG_AT(LOG_INFO, LOG_TEXT("refused "), LOG_NUMBER(bytes), LOG_TEXT(" bytes of HSA's on device "),
	       LOG_NUMBER(place->ordinal), LOG_TEXT(", whose limit is "), LOG_NUMBER(limit));
	return false;
}

/* `code` is what the runtime answered, which is returned. */
static int settle(const struct hsa_place *place, uint64_t bytes, int code, const void *address,
		  enum allocation_kind kind)
{
	struct allocation made = {
		.address = address,
		.bytes = limit_round_up(bytes),
		.device = (uint16_t)place->device,
		.copy = ALLOCATION_BELOW_HIP,
		.kind = (uint8_t)kind,
		.references = kind == KIND_HANDLE ? 1 : 0,
	};

	if (code == HSA_SUCCESS && address)
		ledger_commit(&made);
	else
		ledger_cancel(made.device, made.bytes);
	LOG_AT(LOG_DEBUG, LOG_TEXT("HSA's allocation of "), LOG_NUMBER(made.bytes), LOG_TEXT(" bytes on device "),
	       LOG_NUMBER(place->ordinal), LOG_TEXT(": code "), LOG_NUMBER(code));
	return code;
}

int hook_hsa_memory_allocate(struct hsa_copy *hsa, uint64_t region, size_t bytes, void **address)
{
	struct hsa_place place = {0};
	int code;

	if (address && bytes)
		place = hsa_devices_of_region(hsa, region);
	if (!place.on_gpu)
		return hsa->real.hsa_memory_allocate(region, bytes, address);
	if (!reserve(&place, bytes))
		return HSA_OUT_OF_RESOURCES;
	code = hsa->real.hsa_memory_allocate(region, bytes, address);
	return settle(&place, bytes, code, *address, KIND_PLAIN);
}

int hook_hsa_amd_memory_pool_allocate(struct hsa_copy *hsa, uint64_t pool, size_t bytes, uint32_t flags, void **address)
{
	struct hsa_place place = {0};
	int code;

	if (address && bytes)
		place = hsa_devices_of_pool(hsa, pool);
	if (!place.on_gpu)
		return hsa->real.hsa_amd_memory_pool_allocate(pool, bytes, flags, address);
	if (!reserve(&place, bytes))
		return HSA_OUT_OF_RESOURCES;
	code = hsa->real.hsa_amd_memory_pool_allocate(pool, bytes, flags, address);
	return settle(&place, bytes, code, *address, KIND_PLAIN);
}

int hook_hsa_amd_vmem_handle_create(struct hsa_copy *hsa, uint64_t pool, size_t bytes, int type, uint64_t flags,
				    uint64_t *handle)
{
	struct hsa_place place = {0};
	int code;

	if (handle && bytes)
		place = hsa_devices_of_pool(hsa, pool);
	if (!place.on_gpu)
		return hsa->real.hsa_amd_vmem_handle_create(pool, bytes, type, flags, handle);
	if (!reserve(&place, bytes))
		return HSA_OUT_OF_RESOURCES;
	code = hsa->real.hsa_amd_vmem_handle_create(pool, bytes, type, flags, handle);
	return settle(&place, bytes, code, (const void *)*handle, KIND_HANDLE);
}

int hook_hsaKmtAllocMemory(struct hsa_copy *hsa, uint32_t node, uint64_t bytes, uint32_t flags, void **address)
{
	struct hsa_place place = {0};
	int code;

	if (address && bytes)
		place = hsa_devices_of_node(hsa, node, flags);
	if (!place.on_gpu)
		return hsa->real.hsaKmtAllocMemory(node, bytes, flags, address);
	if (!reserve(&place, bytes))
		return HSA_THUNK_NO_MEMORY;
	code = hsa->real.hsaKmtAllocMemory(node, bytes, flags, address);
	return settle(&place, bytes, code, *address, KIND_PLAIN);
}

int hook_hsaKmtAllocMemoryAlign(struct hsa_copy *hsa, uint32_t node, uint64_t bytes, uint64_t alignment, uint32_t flags,
				void **address)
{
	struct hsa_place place = {0};
	int code;

	if (address && bytes)
		place = hsa_devices_of_node(hsa, node, flags);
	if (!place.on_gpu)
		return hsa->real.hsaKmtAllocMemoryAlign(node, bytes, alignment, flags, address);
	if (!reserve(&place, bytes))
		return HSA_THUNK_NO_MEMORY;
	code = hsa->real.hsaKmtAllocMemoryAlign(node, bytes, alignment, flags, address);
	return settle(&place, bytes, code, *address, KIND_PLAIN);
}

/* What was taken out before the runtime was asked; `code` is its answer, which is returned. */
static int settle_free(bool known, const struct allocation *taken, int code)
{
	if (known && code != HSA_SUCCESS)
		ledger_put_back(taken);
	else if (known)
		ledger_credit(taken);
	LOG_AT(LOG_DEBUG, LOG_TEXT("HSA's free of "), LOG_NUMBER(known ? taken->bytes : 0), LOG_TEXT(" bytes: code "),
	       LOG_NUMBER(code));
	return code;
}

int hook_hsa_memory_free(struct hsa_copy *hsa, void *address)
{
	struct allocation taken;
	bool known = address && ledger_take(address, &taken);

	return settle_free(known, &taken, hsa->real.hsa_memory_free(address));
}

int hook_hsa_amd_memory_pool_free(struct hsa_copy *hsa, void *address)
{
	struct allocation taken;
	bool known = address && ledger_take(address, &taken);

	return settle_free(known, &taken, hsa->real.hsa_amd_memory_pool_free(address));
}

int hook_hsaKmtFreeMemory(struct hsa_copy *hsa, void *address, uint64_t bytes)
{
	struct allocation taken;
	bool known = address && ledger_take(address, &taken);

	return settle_free(known, &taken, hsa->real.hsaKmtFreeMemory(address, bytes));
}

static void lower(void *value, size_t size, uint64_t ceiling)
{
	uint64_t told = 0;

	/* Some sizes are 32 bits wide; little-endian, like all processors that this library runs on. */
	memcpy(&told, value, size);
	told = told < ceiling ? told : ceiling;
	memcpy(value, &told, size);
}

int hook_hsa_agent_get_info(struct hsa_copy *hsa, uint64_t agent, int attribute, void *value)
{
	int code = hsa->real.hsa_agent_get_info(agent, attribute, value);
	struct hsa_place place = {0};
	uint64_t limit;
	uint64_t used;

	if (code == HSA_SUCCESS && value && attribute == AGENT_MEMORY_AVAILABLE)
		place = hsa_devices_of_agent(hsa, agent);
	if (!place.on_gpu)
		return code;
	limit = limit_bytes(place.ordinal);
	used = place.device < 0 ? limit : region_used((unsigned)place.device);
	lower(value, sizeof(uint64_t), used < limit ? limit - used : 0);
	return code;
}

int hook_hsa_region_get_info(struct hsa_copy *hsa, uint64_t region, int attribute, void *value)
{
	int code = hsa->real.hsa_region_get_info(region, attribute, value);
	struct hsa_place place = {0};

	if (code == HSA_SUCCESS && value && (attribute == MEMORY_SIZE || attribute == REGION_LARGEST))
		place = hsa_devices_of_region(hsa, region);
	if (place.on_gpu)
		lower(value, sizeof(size_t), limit_bytes(place.ordinal));
	return code;
}

int hook_hsa_amd_memory_pool_get_info(struct hsa_copy *hsa, uint64_t pool, int attribute, void *value)
{
	int code = hsa->real.hsa_amd_memory_pool_get_info(pool, attribute, value);
	struct hsa_place place = {0};

	if (code == HSA_SUCCESS && value && (attribute == MEMORY_SIZE || attribute == POOL_LARGEST))
		place = hsa_devices_of_pool(hsa, pool);
	if (place.on_gpu)
		lower(value, sizeof(size_t), limit_bytes(place.ordinal));
	return code;
}
