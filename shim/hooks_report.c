/* What HIP says about a GPU's memory: everywhere the limit takes the place of the size, where it is smaller. */
#include "booking.h"
#include "devices.h"
#include "limit.h"
#include "nest.h"
#include "pools.h"
#include "region.h"
#include "sys.h"

/* totalGlobalMem, a size_t, in the two layouts of hipDeviceProp_t (HIP headers 5.0 to 7.2). The plain symbol
 * hipGetDeviceProperties keeps the old layout also in 6.x and 7.x. Sizes: 792 and 1472 bytes. */
enum { TOTAL_IN_R0000 = 256, TOTAL_IN_R0600 = 288 };

/* hipDeviceAttributeTotalGlobalMem, an int which HIP cuts off; the same number in all headers from 5.0 to 7.2. */
enum { ATTRIBUTE_TOTAL = 84 };

static uint64_t at_most(uint64_t value, uint64_t ceiling)
{
	return value < ceiling ? value : ceiling;
}

/* What an allocation would get: within the limit, whole pages of what others have left. */
static uint64_t left(struct hip_copy *hip, unsigned ordinal)
{
	uint64_t limit = limit_bytes(ordinal);
	int number = devices_number(hip, ordinal);

	if (number < 0)
		return 0;
	pools_refresh_all(hip, (unsigned)number);
	return limit - at_most(region_used((unsigned)number), limit);
}

static int memory_info(struct hip_copy *hip, size_t *free, size_t *total)
{
	size_t real_free = 0;
	size_t real_total = 0;
	unsigned ordinal;
	int code = booking_device(hip, &ordinal);

	if (code == HIP_SUCCESS)
		code = hip->real.hipMemGetInfo(&real_free, &real_total);
	if (code != HIP_SUCCESS)
		return code;
	if (free)
		*free = at_most(real_free, left(hip, ordinal));
	if (total)
		*total = at_most(real_total, limit_bytes(ordinal));
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

int hook_hipDeviceGetAttribute(struct hip_copy *hip, int *value, int attribute, int device)
{
	int code;

	if (!value || attribute != ATTRIBUTE_TOTAL || !nest_enter())
		return hip->real.hipDeviceGetAttribute(value, attribute, device);
	code = hip->real.hipDeviceGetAttribute(value, attribute, device);
	nest_leave();
	if (code == HIP_SUCCESS && *value > 0)
		*value = (int)at_most((uint64_t)*value, limit_bytes((unsigned)device));
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
