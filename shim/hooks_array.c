/* Arrays for textures. Their real size is known to HIP alone; what is charged is that of the elements. */
#include "booking.h"
#include "nest.h"
#include "releases.h"

/* hipChannelFormatDesc: bits of each channel. */
struct channels {
	int bits[4];
	int kind;
};

/* HIP_ARRAY_DESCRIPTOR and HIP_ARRAY3D_DESCRIPTOR. */
struct descriptor_2d {
	size_t width;
	size_t height;
	unsigned format;
	unsigned channel_count;
};
struct descriptor_3d {
	size_t width;
	size_t height;
	size_t depth;
	unsigned format;
	unsigned channel_count;
	unsigned flags;
};

static uint64_t element_of_channels(const struct channels *channels)
{
	uint64_t bits = 0;

	for (int i = 0; i < 4; i++)
		bits += channels->bits[i] > 0 ? (uint64_t)channels->bits[i] : 0;
	return (bits + 7) / 8;
}

/* HIP_AD_FORMAT_*: 1, 2, 3 unsigned and 8, 9, 10 signed integers of 8, 16, 32 bits; 0x10 half, 0x20 float. */
static uint64_t element_of_format(unsigned format, unsigned channel_count)
{
	uint64_t bytes = 4;

	if (format == 1 || format == 8)
		bytes = 1;
	else if (format == 2 || format == 9 || format == 0x10)
		bytes = 2;
	return bytes * channel_count;
}

static uint64_t volume(struct hip_extent extent)
{
	uint64_t plane = booking_product(extent.width, extent.height ? extent.height : 1);

	return booking_product(plane, extent.depth ? extent.depth : 1);
}

/* Each level has half the extent of the one before. */
static uint64_t volume_of_levels(struct hip_extent extent, unsigned levels)
{
	uint64_t total = 0;

	for (unsigned level = 0; level < levels && level < 64; level++) {
		if (__builtin_add_overflow(total, volume(extent), &total))
			return UINT64_MAX;
		extent.width = extent.width > 1 ? extent.width / 2 : extent.width;
		extent.height = extent.height > 1 ? extent.height / 2 : extent.height;
		extent.depth = extent.depth > 1 ? extent.depth / 2 : extent.depth;
	}
	return total;
}

static int close_array(const struct booking *booking, int code, void *const *array)
{
	return booking_close_as(booking, code,
				&(struct allocation){.address = *array, .owner = *array, .kind = KIND_PLAIN});
}

/* Books `bytes` and runs `call`, whose result is an array. */
#define ALLOCATE_ARRAY(hip, array, bytes, call)                        \
	do {                                                           \
		struct booking booking;                                \
		int code = booking_open(&booking, hip, bytes);         \
                                                                       \
		if (code == HIP_SUCCESS)                               \
			code = close_array(&booking, call, array);     \
		nest_leave();                                          \
		return code;                                           \
	} while (0)

int hook_hipMallocArray(struct hip_copy *hip, void **array, const void *channels, size_t width, size_t height,
			unsigned flags)
{
	struct hip_extent extent = {width, height, 0};

	if (!array || !channels || !width || !nest_enter())
		return hip->real.hipMallocArray(array, channels, width, height, flags);
	ALLOCATE_ARRAY(hip, array, booking_product(volume(extent), element_of_channels(channels)),
		       hip->real.hipMallocArray(array, channels, width, height, flags));
}

int hook_hipMalloc3DArray(struct hip_copy *hip, void **array, const void *channels, struct hip_extent extent,
			  unsigned flags)
{
	if (!array || !channels || !extent.width || !nest_enter())
		return hip->real.hipMalloc3DArray(array, channels, extent, flags);
	ALLOCATE_ARRAY(hip, array, booking_product(volume(extent), element_of_channels(channels)),
		       hip->real.hipMalloc3DArray(array, channels, extent, flags));
}

int hook_hipArrayCreate(struct hip_copy *hip, void **array, const void *descriptor)
{
	const struct descriptor_2d *wanted = descriptor;

	if (!array || !wanted || !wanted->width || !nest_enter())
		return hip->real.hipArrayCreate(array, descriptor);
	ALLOCATE_ARRAY(hip, array,
		       booking_product(volume((struct hip_extent){wanted->width, wanted->height, 0}),
				       element_of_format(wanted->format, wanted->channel_count)),
		       hip->real.hipArrayCreate(array, descriptor));
}

static struct hip_extent extent_of(const struct descriptor_3d *wanted)
{
	return (struct hip_extent){wanted->width, wanted->height, wanted->depth};
}

int hook_hipArray3DCreate(struct hip_copy *hip, void **array, const void *descriptor)
{
	const struct descriptor_3d *wanted = descriptor;

	if (!array || !wanted || !wanted->width || !nest_enter())
		return hip->real.hipArray3DCreate(array, descriptor);
	ALLOCATE_ARRAY(hip, array,
		       booking_product(volume(extent_of(wanted)), element_of_format(wanted->format, wanted->channel_count)),
		       hip->real.hipArray3DCreate(array, descriptor));
}

int hook_hipMallocMipmappedArray(struct hip_copy *hip, void **array, const void *channels, struct hip_extent extent,
				 unsigned levels, unsigned flags)
{
	if (!array || !channels || !extent.width || !nest_enter())
		return hip->real.hipMallocMipmappedArray(array, channels, extent, levels, flags);
	ALLOCATE_ARRAY(hip, array, booking_product(volume_of_levels(extent, levels), element_of_channels(channels)),
		       hip->real.hipMallocMipmappedArray(array, channels, extent, levels, flags));
}

int hook_hipMipmappedArrayCreate(struct hip_copy *hip, void **array, void *descriptor, unsigned levels)
{
	const struct descriptor_3d *wanted = descriptor;

	if (!array || !wanted || !wanted->width || !nest_enter())
		return hip->real.hipMipmappedArrayCreate(array, descriptor, levels);
	ALLOCATE_ARRAY(hip, array,
		       booking_product(volume_of_levels(extent_of(wanted), levels),
				       element_of_format(wanted->format, wanted->channel_count)),
		       hip->real.hipMipmappedArrayCreate(array, descriptor, levels));
}

#define FREE_ARRAY_HOOK(name)                                                                    \
	static int real_##name(struct hip_copy *hip, void *array, void *unused)                  \
	{                                                                                        \
		(void)unused;                                                                    \
		return hip->real.name(array);                                                    \
	}                                                                                        \
	int hook_##name(struct hip_copy *hip, void *array)                                       \
	{                                                                                        \
		int code;                                                                        \
                                                                                                 \
		if (!array || !nest_enter())                                                     \
			return hip->real.name(array);                                            \
		code = releases_run(hip, array, real_##name, NULL);                              \
		nest_leave();                                                                    \
		return code;                                                                     \
	}
FREE_ARRAY_HOOK(hipFreeArray)
FREE_ARRAY_HOOK(hipArrayDestroy)
FREE_ARRAY_HOOK(hipFreeMipmappedArray)
FREE_ARRAY_HOOK(hipMipmappedArrayDestroy)
