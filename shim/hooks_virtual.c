/* Virtual memory management: see handles.h. */
#include "booking.h"
#include "handles.h"
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

int hook_hipMemRelease(struct hip_copy *hip, void *handle)
{
	struct handle_release release;
	int code;

	if (!handle || !nest_enter())
		return hip->real.hipMemRelease(handle);
	handles_begin_release(&release, handle);
	code = handles_end_release(&release, hip->real.hipMemRelease(handle));
	nest_leave();
	return code;
}

int hook_hipMemMap(struct hip_copy *hip, void *address, size_t bytes, size_t offset, void *handle,
		   unsigned long long flags)
{
	int code;

	if (!address || !handle || !nest_enter())
		return hip->real.hipMemMap(address, bytes, offset, handle, flags);
	code = hip->real.hipMemMap(address, bytes, offset, handle, flags);
	if (code == HIP_SUCCESS)
		handles_mapped(address, bytes, handle, (uint8_t)hip->index);
	nest_leave();
	return code;
}

int hook_hipMemUnmap(struct hip_copy *hip, void *address, size_t bytes)
{
	int code;

	if (!address || !nest_enter())
		return hip->real.hipMemUnmap(address, bytes);
	code = hip->real.hipMemUnmap(address, bytes);
	if (code == HIP_SUCCESS)
		handles_unmapped(address, bytes);
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

/* Whoever made the memory is charged for it. */
int hook_hipMemImportFromShareableHandle(struct hip_copy *hip, void **handle, void *shared, int type)
{
	int code;

	if (!nest_enter())
		return hip->real.hipMemImportFromShareableHandle(handle, shared, type);
	code = hip->real.hipMemImportFromShareableHandle(handle, shared, type);
	if (code == HIP_SUCCESS && handle)
		handles_imported(*handle);
	nest_leave();
	return code;
}
