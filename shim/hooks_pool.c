/* Stream-ordered memory: it belongs to the GPU of its stream or pool, whichever GPU is current. */
#include "booking.h"
#include "graphs.h"
#include "limit.h"
#include "nest.h"
#include "pools.h"
#include "region.h"
#include "releases.h"

/* hipMemPoolProps: what kind (4 bytes), handle types (4), location. */
struct pool_properties {
	int kind;
	int handle_types;
	int location_type;
	int location_id;
};

/* One call for memory of a pool. */
struct request {
	struct hip_copy *hip;
	void **address;
	size_t bytes;
	void *pool;
	void *stream;
	bool names_pool;
};

static int ask_hip(const struct request *request)
{
	if (request->names_pool)
		return request->hip->real.hipMallocFromPoolAsync(request->address, request->bytes, request->pool,
								 request->stream);
	return request->hip->real.hipMallocAsync(request->address, request->bytes, request->stream);
}

/* The current GPU when HIP cannot tell: hipStreamGetDevice came with 5.6. */
static int device_of_stream(struct hip_copy *hip, void *stream, unsigned *ordinal)
{
	int number;

	if (stream && hip->real.hipStreamGetDevice && hip->real.hipStreamGetDevice(stream, &number) == HIP_SUCCESS) {
		*ordinal = (unsigned)number;
		return HIP_SUCCESS;
	}
	return booking_device(hip, ordinal);
}

/* A pool that outgrew its limit, because what it had idle was in pieces, has to give the memory back at once. */
static int settle(const struct request *request, struct booking *booking)
{
	struct hip_copy *hip = request->hip;

	if (!request->pool || !pools_settle(hip, request->pool, booking, (int64_t)request->bytes)) {
		booking_correct(booking, request->bytes);
		return booking_close(booking, HIP_SUCCESS, *request->address);
	}
	if (region_used(booking->device) > limit_bytes(booking->ordinal) && hip->real.hipFreeAsync) {
		hip->real.hipFreeAsync(*request->address, request->stream);
		pools_refresh(hip, request->pool, -(int64_t)request->bytes);
		*request->address = NULL;
		return booking_close(booking, HIP_OUT_OF_MEMORY, NULL);
	}
	return booking_close_as(booking, HIP_SUCCESS,
				&(struct allocation){.address = *request->address, .owner = request->pool,
						     .pooled = request->bytes, .kind = KIND_POOLED});
}

/* What the pool has idle is charged already, so only the rest has to fit. */
static int allocate(const struct request *request, unsigned ordinal)
{
	uint64_t idle = request->pool ? pools_idle(request->hip, request->pool) : 0;
	struct booking booking;
	int code = booking_open_on(&booking, request->hip, ordinal, request->bytes > idle ? request->bytes - idle : 0);

	if (code != HIP_SUCCESS)
		return code;
	code = ask_hip(request);
	if (code == HIP_SUCCESS && *request->address)
		return settle(request, &booking);
	return booking_close(&booking, code, NULL);
}

/* In a stream that is captured nothing is allocated now; the graph will do it when it is launched. */
static int allocate_in_graph(const struct request *request, unsigned ordinal)
{
	struct booking booking;
	int code = booking_open_on(&booking, request->hip, ordinal, request->bytes);

	if (code == HIP_SUCCESS)
		code = graphs_close(&booking, ask_hip(request), request->stream);
	return code;
}

int hook_hipMallocAsync(struct hip_copy *hip, void **address, size_t bytes, void *stream)
{
	struct request request = {hip, address, bytes, NULL, stream, false};
	unsigned ordinal;
	int code;

	if (!address || !bytes || !nest_enter())
		return hip->real.hipMallocAsync(address, bytes, stream);
	code = device_of_stream(hip, stream, &ordinal);
	if (code == HIP_SUCCESS && hip->real.hipDeviceGetMemPool &&
	    hip->real.hipDeviceGetMemPool(&request.pool, (int)ordinal) != HIP_SUCCESS)
		request.pool = NULL;
	if (code == HIP_SUCCESS)
		code = graphs_is_captured(hip, stream) ? allocate_in_graph(&request, ordinal) : allocate(&request, ordinal);
	nest_leave();
	return code;
}

int hook_hipMallocFromPoolAsync(struct hip_copy *hip, void **address, size_t bytes, void *pool, void *stream)
{
	struct request request = {hip, address, bytes, pool, stream, true};
	unsigned ordinal;
	int code;

	if (!address || !bytes || !pool || !nest_enter())
		return hip->real.hipMallocFromPoolAsync(address, bytes, pool, stream);
	code = pools_ordinal(pool, &ordinal) ? HIP_SUCCESS : device_of_stream(hip, stream, &ordinal);
	if (code == HIP_SUCCESS)
		code = graphs_is_captured(hip, stream) ? allocate_in_graph(&request, ordinal) : allocate(&request, ordinal);
	nest_leave();
	return code;
}

static int real_free_async(struct hip_copy *hip, void *address, void *stream)
{
	return hip->real.hipFreeAsync(address, stream);
}

/* In a captured stream it is the graph that will free. */
int hook_hipFreeAsync(struct hip_copy *hip, void *address, void *stream)
{
	int code;

	if (!address || !nest_enter())
		return hip->real.hipFreeAsync(address, stream);
	if (graphs_is_captured(hip, stream))
		code = hip->real.hipFreeAsync(address, stream);
	else
		code = releases_run(hip, address, real_free_async, stream);
	nest_leave();
	return code;
}

int hook_hipMemPoolCreate(struct hip_copy *hip, void **pool, const void *properties)
{
	const struct pool_properties *wanted = properties;
	int code;

	if (!pool || !wanted || !nest_enter())
		return hip->real.hipMemPoolCreate(pool, properties);
	code = hip->real.hipMemPoolCreate(pool, properties);
	if (code == HIP_SUCCESS && wanted->location_type == HIP_LOCATION_DEVICE)
		pools_note(hip, *pool, (unsigned)wanted->location_id);
	nest_leave();
	return code;
}

int hook_hipMemPoolDestroy(struct hip_copy *hip, void *pool)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemPoolDestroy(pool);
	code = hip->real.hipMemPoolDestroy(pool);
	if (code == HIP_SUCCESS)
		pools_destroyed(pool);
	nest_leave();
	return code;
}

int hook_hipMemPoolTrimTo(struct hip_copy *hip, void *pool, size_t keep)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemPoolTrimTo(pool, keep);
	code = hip->real.hipMemPoolTrimTo(pool, keep);
	if (code == HIP_SUCCESS)
		pools_refresh(hip, pool, 0);
	nest_leave();
	return code;
}

/* A lower threshold makes a pool give memory back. */
int hook_hipMemPoolSetAttribute(struct hip_copy *hip, void *pool, int attribute, void *value)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemPoolSetAttribute(pool, attribute, value);
	code = hip->real.hipMemPoolSetAttribute(pool, attribute, value);
	if (code == HIP_SUCCESS)
		pools_refresh(hip, pool, 0);
	nest_leave();
	return code;
}
