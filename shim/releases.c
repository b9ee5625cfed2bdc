/* Giving memory back, one piece or all of a GPU: see releases.h. */
#include "releases.h"

#include "booking.h"
#include "devices.h"
#include "log.h"
#include "nest.h"
#include "pools.h"

int releases_run(struct hip_copy *hip, void *address, release_function real, void *context)
{
	struct allocation taken;
	bool known = ledger_take(address, &taken);
	int code = real(hip, address, context);

	if (known && code != HIP_SUCCESS) {
		ledger_put_back(&taken);
	} else if (known) {
		if (taken.kind == KIND_POOLED)
			pools_refresh(hip, (void *)taken.owner, -(int64_t)taken.pooled);
		ledger_credit(&taken);
	}
	LOG_AT(LOG_DEBUG, LOG_TEXT("free of "), LOG_NUMBER(known ? taken.bytes : 0), LOG_TEXT(" bytes: code "),
	       LOG_NUMBER(code));
	return code;
}

struct reset {
	struct hip_copy *hip;
	unsigned device;
};

/* HIP is asked about each address: not every version frees everything. Arrays and handles cannot be asked about. */
static bool is_gone(const struct allocation *allocation, void *context)
{
	const struct reset *reset = context;
	size_t bytes;

	if (allocation->copy != reset->hip->index || allocation->device != reset->device)
		return false;
	if (allocation->kind == KIND_POOLED)
		return true;
	return allocation->kind == KIND_PLAIN && !allocation->owner && reset->hip->real.hipMemPtrGetInfo &&
	       reset->hip->real.hipMemPtrGetInfo((void *)allocation->address, &bytes) != HIP_SUCCESS;
}

static void drop_all(struct hip_copy *hip, unsigned ordinal)
{
	int number = devices_number(hip, ordinal);

	if (number < 0)
		return;
	pools_reset(hip, (unsigned)number);
	ledger_sweep(is_gone, &(struct reset){hip, (unsigned)number});
	/* What the questions left behind is not the program's error. */
	if (hip->real.hipGetLastError)
		hip->real.hipGetLastError();
}

int hook_hipDeviceReset(struct hip_copy *hip, struct hip_nothing nothing)
{
	unsigned ordinal;
	int code;

	if (!nest_enter())
		return hip->real.hipDeviceReset(nothing);
	code = booking_device(hip, &ordinal);
	if (code == HIP_SUCCESS)
		code = hip->real.hipDeviceReset(nothing);
	if (code == HIP_SUCCESS)
		drop_all(hip, ordinal);
	nest_leave();
	return code;
}
