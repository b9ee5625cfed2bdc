/* See booking.h. */
#include "booking.h"

#include "devices.h"
#include "limit.h"
#include "log.h"
#include "pools.h"
#include "region.h"

/* Larger than any GPU; HIP compares it with the device's size before it does anything. */
#define IMPOSSIBLE_SIZE ((size_t)1 << 60)

enum { CAPTURE_RELAXED = 2 };

/* In another mode an allocation spoils every capture of a stream that is going on, whichever thread's it is. */
static bool exchange_capture_mode(struct hip_copy *hip, int *mode)
{
	return hip->real.hipThreadExchangeStreamCaptureMode &&
	       hip->real.hipThreadExchangeStreamCaptureMode(mode) == HIP_SUCCESS;
}

static int ask_for_the_impossible(struct hip_copy *hip, void **address)
{
	int mode = CAPTURE_RELAXED;
	bool exchanged = exchange_capture_mode(hip, &mode);
	int code = hip->real.hipMalloc(address, IMPOSSIBLE_SIZE);

	if (exchanged)
		exchange_capture_mode(hip, &mode);
	return code;
}

static int run_out_of_memory(struct hip_copy *hip, unsigned ordinal)
{
	void *address = NULL;
	size_t total;
	/* Of a GPU that does not exist HIP says so. */
	int code = hip->real.hipDeviceTotalMem ? hip->real.hipDeviceTotalMem(&total, (int)ordinal) : HIP_SUCCESS;

	if (code != HIP_SUCCESS)
		return code;
	code = ask_for_the_impossible(hip, &address);
	if (code != HIP_SUCCESS)
		return code;
	hip->real.hipFree(address);
	return HIP_OUT_OF_MEMORY;
}

int booking_device(struct hip_copy *hip, unsigned *ordinal)
{
	int number = 0;
	int code = hip->real.hipGetDevice ? hip->real.hipGetDevice(&number) : HIP_OUT_OF_MEMORY;

	*ordinal = (unsigned)number;
	return code;
}

static void log_refusal(const struct booking *booking)
{
	LOG_AT(LOG_INFO, LOG_TEXT("refused "), LOG_NUMBER(booking->bytes), LOG_TEXT(" bytes on device "),
	       LOG_NUMBER(booking->ordinal), LOG_TEXT(": this container holds "), LOG_NUMBER(region_used(booking->device)),
	       LOG_TEXT(" of "), LOG_NUMBER(limit_bytes(booking->ordinal)));
}

int booking_open_on(struct booking *booking, struct hip_copy *hip, unsigned ordinal, uint64_t bytes)
{
	int number = devices_number(hip, ordinal);
	uint64_t limit = limit_bytes(ordinal);

	*booking = (struct booking){hip, ordinal, (unsigned)number, limit_round_up(bytes)};
	if (number >= 0 && (ledger_reserve(booking->device, booking->bytes, limit) ||
			    (pools_give_back(hip, booking->device) &&
			     ledger_reserve(booking->device, booking->bytes, limit))))
		return HIP_SUCCESS;
	log_refusal(booking);
	return run_out_of_memory(hip, ordinal);
}

int booking_open(struct booking *booking, struct hip_copy *hip, uint64_t bytes)
{
	unsigned ordinal;
	int code = booking_device(hip, &ordinal);

	return code == HIP_SUCCESS ? booking_open_on(booking, hip, ordinal, bytes) : code;
}

int booking_close_as(const struct booking *booking, int code, const struct allocation *entry)
{
	struct allocation mine = *entry;

	mine.bytes = booking->bytes;
	mine.device = (uint16_t)booking->device;
	mine.copy = (uint8_t)booking->hip->index;
	if (code == HIP_SUCCESS && entry->address)
		ledger_commit(&mine);
	else
		ledger_cancel(booking->device, booking->bytes);
	LOG_AT(LOG_DEBUG, LOG_TEXT("allocation of "), LOG_NUMBER(booking->bytes), LOG_TEXT(" bytes on device "),
	       LOG_NUMBER(booking->ordinal), LOG_TEXT(": code "), LOG_NUMBER(code));
	return code;
}

int booking_close(const struct booking *booking, int code, const void *address)
{
	return booking_close_as(booking, code, &(struct allocation){.address = address, .kind = KIND_PLAIN});
}

void booking_correct(struct booking *booking, uint64_t bytes)
{
	uint64_t exact = limit_round_up(bytes);

	region_add(booking->device, exact - booking->bytes);
	booking->bytes = exact;
}

uint64_t booking_product(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
