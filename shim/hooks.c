/* What happens in place of HIP's memory functions.
 *
 * The rules: what HIP itself would refuse (NULL, size 0) goes straight to HIP. HIP's own inner calls pass. A helper call
 * that fails ends the hook with its code, which is the code that the program would have got from HIP. */
#include <stdint.h>

#include "hook_table.h"
#include "ledger.h"
#include "limit.h"
#include "log.h"
#include "nest.h"
#include "sys.h"

/* totalGlobalMem, a size_t, in the two layouts of hipDeviceProp_t (HIP headers 5.0 to 7.2). The plain symbol
 * hipGetDeviceProperties keeps the old layout also in 6.x and 7.x. Sizes: 792 and 1472 bytes. */
enum { TOTAL_IN_R0000 = 256, TOTAL_IN_R0600 = 288 };

/* Larger than any GPU; HIP compares it with the device's size before it does anything. */
#define IMPOSSIBLE_SIZE ((size_t)1 << 60)

static uint64_t at_most(uint64_t value, uint64_t ceiling)
{
	return value < ceiling ? value : ceiling;
}

/* Lets HIP run out of memory by itself, so that the thread's last error and HIP's own log say so too. */
static int run_out_of_memory(struct hip_copy *hip)
{
	void *address = NULL;
	int code = hip->real.hipMalloc(&address, IMPOSSIBLE_SIZE);

	if (code != HIP_SUCCESS)
		return code;
	hip->real.hipFree(address);
	return HIP_OUT_OF_MEMORY;
}

static int current_device(struct hip_copy *hip, unsigned *device)
{
	int ordinal = 0;
	int code = hip->real.hipGetDevice ? hip->real.hipGetDevice(&ordinal) : HIP_OUT_OF_MEMORY;

	*device = (unsigned)ordinal;
	return code;
}

static void log_refusal(unsigned device, uint64_t bytes)
{
	LOG_AT(LOG_INFO, LOG_TEXT("refused "), LOG_NUMBER(bytes), LOG_TEXT(" bytes on device "), LOG_NUMBER(device),
	       LOG_TEXT(": holds "), LOG_NUMBER(ledger_used(device)), LOG_TEXT(" of "), LOG_NUMBER(limit_bytes(device)));
}

static int allocate(struct hip_copy *hip, void **address, size_t bytes)
{
	unsigned device;
	int code = current_device(hip, &device);

	if (code != HIP_SUCCESS)
		return code;
	if (!ledger_reserve(device, bytes, limit_bytes(device))) {
		log_refusal(device, bytes);
		return run_out_of_memory(hip);
	}
	code = hip->real.hipMalloc(address, bytes);
	if (code == HIP_SUCCESS && *address)
		ledger_commit(&(struct allocation){*address, bytes, device});
	else
		ledger_cancel(device, bytes);
	LOG_AT(LOG_DEBUG, LOG_TEXT("hipMalloc of "), LOG_NUMBER(bytes), LOG_TEXT(" bytes on device "), LOG_NUMBER(device),
	       LOG_TEXT(": code "), LOG_NUMBER(code));
	return code;
}

int hook_hipMalloc(struct hip_copy *hip, void **address, size_t bytes)
{
	int code;

	if (!address || !bytes || !nest_enter())
		return hip->real.hipMalloc(address, bytes);
	code = allocate(hip, address, bytes);
	nest_leave();
	return code;
}

int hook_hipFree(struct hip_copy *hip, void *address)
{
	struct allocation taken;
	bool known;
	int code;

	if (!address || !nest_enter())
		return hip->real.hipFree(address);
	known = ledger_take(address, &taken);
	code = hip->real.hipFree(address);
	if (known && code == HIP_SUCCESS)
		ledger_credit(&taken);
	else if (known)
		ledger_put_back(&taken);
	nest_leave();
	LOG_AT(LOG_DEBUG, LOG_TEXT("hipFree of "), LOG_NUMBER(known ? taken.bytes : 0), LOG_TEXT(" bytes: code "),
	       LOG_NUMBER(code));
	return code;
}

static int memory_info(struct hip_copy *hip, size_t *free, size_t *total)
{
	size_t real_free = 0;
	size_t real_total = 0;
	uint64_t limit;
	uint64_t used;
	unsigned device;
	int code = current_device(hip, &device);

	if (code == HIP_SUCCESS)
		code = hip->real.hipMemGetInfo(&real_free, &real_total);
	if (code != HIP_SUCCESS)
		return code;
	limit = limit_bytes(device);
	used = at_most(ledger_used(device), limit);
	if (free)
		*free = at_most(real_free, limit - used);
	if (total)
		*total = at_most(real_total, limit);
	return HIP_SUCCESS;
}

int hook_hipMemGetInfo(struct hip_copy *hip, size_t *free, size_t *total)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemGetInfo(free, total);
	code = memory_info(hip, free, total);
	nest_leave();
	return code;
}

int hook_hipDeviceTotalMem(struct hip_copy *hip, size_t *bytes, int device)
{
	int code;

	if (!bytes || !nest_enter())
		return hip->real.hipDeviceTotalMem(bytes, device);
	code = hip->real.hipDeviceTotalMem(bytes, device);
	nest_leave();
	if (code == HIP_SUCCESS)
		*bytes = at_most(*bytes, limit_bytes((unsigned)device));
	return code;
}

static int properties(int (*real)(void *, int), void *result, int device, size_t total_offset)
{
	uint64_t total;
	int code;

	if (!result || !nest_enter())
		return real(result, device);
	code = real(result, device);
	nest_leave();
	if (code == HIP_SUCCESS) {
		memcpy(&total, (char *)result + total_offset, sizeof(total));
		total = at_most(total, limit_bytes((unsigned)device));
		memcpy((char *)result + total_offset, &total, sizeof(total));
	}
	return code;
}

int hook_hipGetDeviceProperties(struct hip_copy *hip, void *result, int device)
{
	return properties(hip->real.hipGetDeviceProperties, result, device, TOTAL_IN_R0000);
}

int hook_hipGetDevicePropertiesR0000(struct hip_copy *hip, void *result, int device)
{
	return properties(hip->real.hipGetDevicePropertiesR0000, result, device, TOTAL_IN_R0000);
}

int hook_hipGetDevicePropertiesR0600(struct hip_copy *hip, void *result, int device)
{
	return properties(hip->real.hipGetDevicePropertiesR0600, result, device, TOTAL_IN_R0600);
}
