/* Virtual memory management: physical memory has a handle, which may be mapped any number of times. It goes when it is
 * neither held nor mapped any more. */
#include "booking.h"
#include "nest.h"

/* hipMemAllocationProp begins with what is compressed in HIP 5.0 to 5.4, and later with the kind of memory, which is never
 * 0. So the first byte tells where the location is. */
struct properties_old {
	unsigned char compression;
	int location_type;
	int location_id;
};
struct properties_new {
	int kind;
	int handle_type;
	int location_type;
	int location_id;
};

/* False when the memory does not lie on a GPU. */
static bool find_device(const void *properties, unsigned *ordinal)
{
	const struct properties_old *old = properties;
	const struct properties_new *new = properties;
	bool is_old = *(const unsigned char *)properties == 0;

	*ordinal = (unsigned)(is_old ? old->location_id : new->location_id);
	return (is_old ? old->location_type : new->location_type) == HIP_LOCATION_DEVICE;
}

static int create(struct hip_copy *hip, void **handle, size_t bytes, const void *properties, unsigned long long flags,
		  unsigned ordinal)
{
	struct booking booking;
	unsigned current;
	int code;

	/* Without a GPU HIP says so in its own way. */
	if (booking_device(hip, &current) != HIP_SUCCESS)
		return hip->real.hipMemCreate(handle, bytes, properties, flags);
	code = booking_open_on(&booking, hip, ordinal, bytes);
	if (code != HIP_SUCCESS)
		return code;
	code = hip->real.hipMemCreate(handle, bytes, properties, flags);
	return booking_close_as(&booking, code,
				&(struct allocation){.address = *handle, .kind = KIND_HANDLE, .references = 1});
}

int hook_hipMemCreate(struct hip_copy *hip, void **handle, size_t bytes, const void *properties,
		      unsigned long long flags)
{
	unsigned ordinal;
	int code;

	if (!handle || !bytes || !properties || !find_device(properties, &ordinal) || !nest_enter())
		return hip->real.hipMemCreate(handle, bytes, properties, flags);
	code = create(hip, handle, bytes, properties, flags, ordinal);
	nest_leave();
	return code;
}

/* The entry goes before HIP is asked: right afterwards the handle may be another thread's. */
int hook_hipMemRelease(struct hip_copy *hip, void *handle)
{
	struct allocation last;
	struct allocation before;
	bool known;
	bool was_last;
	int code;

	if (!handle || !nest_enter())
		return hip->real.hipMemRelease(handle);
	known = ledger_look_up(handle, &before);
	was_last = ledger_let_go(handle, &last);
	code = hip->real.hipMemRelease(handle);
	if (code != HIP_SUCCESS && was_last)
		ledger_put_back(&last);
	else if (code != HIP_SUCCESS && known)
		ledger_hold(handle);
	else if (was_last)
		ledger_credit(&last);
	nest_leave();
	return code;
}

static void note_mapped(struct hip_copy *hip, const void *address, size_t bytes, const void *handle)
{
	struct allocation mapped = {.address = address, .owner = handle, .pooled = bytes, .kind = KIND_MAPPED};
	struct allocation found;

	if (!ledger_look_up(handle, &found) || !ledger_reserve_held(found.device, 0))
		return;
	mapped.device = found.device;
	mapped.copy = (uint8_t)hip->index;
	ledger_hold(handle);
	ledger_commit(&mapped);
}

int hook_hipMemMap(struct hip_copy *hip, void *address, size_t bytes, size_t offset, void *handle,
		   unsigned long long flags)
{
	int code;

	if (!address || !handle || !nest_enter())
		return hip->real.hipMemMap(address, bytes, offset, handle, flags);
	code = hip->real.hipMemMap(address, bytes, offset, handle, flags);
	if (code == HIP_SUCCESS)
		note_mapped(hip, address, bytes, handle);
	nest_leave();
	return code;
}

static void drop_mapping(const struct allocation *mapped)
{
	struct allocation last;

	if (ledger_let_go(mapped->owner, &last))
		ledger_credit(&last);
	ledger_credit(mapped);
}

/* A range may cover several mappings, one after the other. */
int hook_hipMemUnmap(struct hip_copy *hip, void *address, size_t bytes)
{
	struct allocation mapped;
	size_t done = 0;
	int code;

	if (!address || !nest_enter())
		return hip->real.hipMemUnmap(address, bytes);
	code = hip->real.hipMemUnmap(address, bytes);
	while (code == HIP_SUCCESS && done < bytes && ledger_look_up((char *)address + done, &mapped) &&
	       mapped.kind == KIND_MAPPED && ledger_take(mapped.address, &mapped)) {
		done += mapped.pooled;
		drop_mapping(&mapped);
	}
	nest_leave();
	return code;
}

int hook_hipMemRetainAllocationHandle(struct hip_copy *hip, void **handle, void *address)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemRetainAllocationHandle(handle, address);
	code = hip->real.hipMemRetainAllocationHandle(handle, address);
	if (code == HIP_SUCCESS && handle && *handle)
		ledger_hold(*handle);
	nest_leave();
	return code;
}

/* Whoever made the memory is charged for it. An entry under the same handle is that of one that HIP has forgotten. */
int hook_hipMemImportFromShareableHandle(struct hip_copy *hip, void **handle, void *shared, int type)
{
	struct allocation stale;
	int code;

	if (!nest_enter())
		return hip->real.hipMemImportFromShareableHandle(handle, shared, type);
	code = hip->real.hipMemImportFromShareableHandle(handle, shared, type);
	if (code == HIP_SUCCESS && handle && *handle && ledger_take(*handle, &stale))
		ledger_credit(&stale);
	nest_leave();
	return code;
}
