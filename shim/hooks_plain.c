/* Memory in one piece: hipMalloc and its kin.
 *
 * The rules of all hooks: what HIP itself would refuse (NULL, size 0) goes straight to HIP. HIP's own inner calls pass. A
 * helper call that fails ends the hook with its code, which is the code that the program would have got from HIP. */
#include "booking.h"
#include "limit.h"
#include "log.h"
#include "nest.h"
#include "pools.h"
#include "releases.h"

enum { FLAG_SIGNAL = 2, LEAST_PITCH = 256 };

int hook_hipMalloc(struct hip_copy *hip, void **address, size_t bytes)
{
	struct booking booking;
	int code;

	if (!address || !bytes || !nest_enter())
		return hip->real.hipMalloc(address, bytes);
	code = booking_open(&booking, hip, bytes);
	if (code == HIP_SUCCESS) {
		code = hip->real.hipMalloc(address, bytes);
		booking_close(&booking, code, *address);
	}
	nest_leave();
	return code;
}

/* Memory for signals lies on the host. */
static int allocate_with_flags(struct hip_copy *hip, void **address, size_t bytes, unsigned flags)
{
	struct booking booking;
	int code;

	if (flags == FLAG_SIGNAL)
		return hip->real.hipExtMallocWithFlags(address, bytes, flags);
	code = booking_open(&booking, hip, bytes);
	if (code != HIP_SUCCESS)
		return code;
	code = hip->real.hipExtMallocWithFlags(address, bytes, flags);
	return booking_close(&booking, code, *address);
}

int hook_hipExtMallocWithFlags(struct hip_copy *hip, void **address, size_t bytes, unsigned flags)
{
	int code;

	if (!address || !bytes || !nest_enter())
		return hip->real.hipExtMallocWithFlags(address, bytes, flags);
	code = allocate_with_flags(hip, address, bytes, flags);
	nest_leave();
	return code;
}

static int allocate_managed(struct hip_copy *hip, void **address, size_t bytes, unsigned flags)
{
	struct booking booking;
	int code;

	if (!limit_counts_managed())
		return hip->real.hipMallocManaged(address, bytes, flags);
	code = booking_open(&booking, hip, bytes);
	if (code != HIP_SUCCESS)
		return code;
	code = hip->real.hipMallocManaged(address, bytes, flags);
	return booking_close(&booking, code, *address);
}

int hook_hipMallocManaged(struct hip_copy *hip, void **address, size_t bytes, unsigned flags)
{
	int code;

	if (!address || !bytes || !nest_enter())
		return hip->real.hipMallocManaged(address, bytes, flags);
	code = allocate_managed(hip, address, bytes, flags);
	nest_leave();
	return code;
}

static uint64_t rows(size_t pitch, size_t height, size_t depth)
{
	return booking_product(booking_product(pitch, height), depth);
}

/* Before HIP has said what the pitch is. */
static uint64_t least_rows(size_t width, size_t height, size_t depth)
{
	return rows(width > SIZE_MAX - LEAST_PITCH ? SIZE_MAX : (width + LEAST_PITCH - 1) & -(size_t)LEAST_PITCH, height,
		    depth);
}

int hook_hipMallocPitch(struct hip_copy *hip, void **address, size_t *pitch, size_t width, size_t height)
{
	struct booking booking;
	int code;

	if (!address || !pitch || !width || !height || !nest_enter())
		return hip->real.hipMallocPitch(address, pitch, width, height);
	code = booking_open(&booking, hip, least_rows(width, height, 1));
	if (code == HIP_SUCCESS) {
		code = hip->real.hipMallocPitch(address, pitch, width, height);
		if (code == HIP_SUCCESS)
			booking_correct(&booking, rows(*pitch, height, 1));
		booking_close(&booking, code, *address);
	}
	nest_leave();
	return code;
}

int hook_hipMemAllocPitch(struct hip_copy *hip, void **address, size_t *pitch, size_t width, size_t height, unsigned item)
{
	struct booking booking;
	int code;

	if (!address || !pitch || !width || !height || !nest_enter())
		return hip->real.hipMemAllocPitch(address, pitch, width, height, item);
	code = booking_open(&booking, hip, least_rows(width, height, 1));
	if (code == HIP_SUCCESS) {
		code = hip->real.hipMemAllocPitch(address, pitch, width, height, item);
		if (code == HIP_SUCCESS)
			booking_correct(&booking, rows(*pitch, height, 1));
		booking_close(&booking, code, *address);
	}
	nest_leave();
	return code;
}

int hook_hipMalloc3D(struct hip_copy *hip, struct hip_pitched *result, struct hip_extent extent)
{
	struct booking booking;
	int code;

	if (!result || !extent.width || !extent.height || !extent.depth || !nest_enter())
		return hip->real.hipMalloc3D(result, extent);
	code = booking_open(&booking, hip, least_rows(extent.width, extent.height, extent.depth));
	if (code == HIP_SUCCESS) {
		code = hip->real.hipMalloc3D(result, extent);
		if (code == HIP_SUCCESS)
			booking_correct(&booking, rows(result->pitch, extent.height, extent.depth));
		booking_close(&booking, code, result->address);
	}
	nest_leave();
	return code;
}

static int real_free(struct hip_copy *hip, void *address, void *unused)
{
	(void)unused;
	return hip->real.hipFree(address);
}

int hook_hipFree(struct hip_copy *hip, void *address)
{
	int code;

	if (!address || !nest_enter())
		return hip->real.hipFree(address);
	code = releases_run(hip, address, real_free, NULL);
	nest_leave();
	return code;
}

/* Somebody else's memory at an address that was ours: that one was freed unseen. */
static int note_foreign(int code, void *const *address)
{
	struct allocation stale;

	if (code == HIP_SUCCESS && address && *address && ledger_take(*address, &stale))
		ledger_credit(&stale);
	return code;
}

/* Whoever allocated the memory is charged for it. */
int hook_hipIpcOpenMemHandle(struct hip_copy *hip, void **address, struct hip_ipc_handle handle, unsigned flags)
{
	int code;

	if (!nest_enter())
		return hip->real.hipIpcOpenMemHandle(address, handle, flags);
	code = note_foreign(hip->real.hipIpcOpenMemHandle(address, handle, flags), address);
	nest_leave();
	return code;
}

int hook_hipExternalMemoryGetMappedBuffer(struct hip_copy *hip, void **address, void *memory, const void *part)
{
	int code;

	if (!nest_enter())
		return hip->real.hipExternalMemoryGetMappedBuffer(address, memory, part);
	code = note_foreign(hip->real.hipExternalMemoryGetMappedBuffer(address, memory, part), address);
	nest_leave();
	return code;
}

int hook_hipMemPoolImportPointer(struct hip_copy *hip, void **address, void *pool, void *exported)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemPoolImportPointer(address, pool, exported);
	code = note_foreign(hip->real.hipMemPoolImportPointer(address, pool, exported), address);
	nest_leave();
	return code;
}
