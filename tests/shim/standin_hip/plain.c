/* STAND-IN for parts of libamdhip64 (see standin_hip.c): memory in one piece beside hipMalloc, arrays, imports, look-ups. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

struct extent {
	size_t width;
	size_t height;
	size_t depth;
};
struct pitched {
	void *address;
	size_t pitch;
	size_t width;
	size_t height;
};
struct ipc_handle {
	char bytes[64];
};

#define PUBLIC __attribute__((visibility("default")))

PUBLIC hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned flags)
{
	hipError_t code = check_device(0);

	if (code != hipSuccess || !address)
		return result(code != hipSuccess ? code : hipErrorInvalidValue);
	return result(allocate_range(address, bytes, current(), flags == 2 ? 0 : bytes)); /* 2: signals, on the host */
}

PUBLIC hipError_t hipMallocManaged(void **address, size_t bytes, unsigned flags)
{
	(void)flags;
	return hipMalloc(address, bytes);
}

/* Asks hipMallocPitch through the PLT. */
PUBLIC hipError_t hipMalloc3D(struct pitched *result_of, struct extent extent)
{
	result_of->width = extent.width;
	result_of->height = extent.height;
	return hipMallocPitch(&result_of->address, &result_of->pitch, extent.width, extent.height * extent.depth);
}

/* Memory of another process: this one's GPU memory does not shrink. */
PUBLIC hipError_t hipIpcOpenMemHandle(void **address, struct ipc_handle handle, unsigned flags)
{
	(void)flags;
	return result(handle.bytes[63] ? hipErrorInvalidValue : allocate_range(address, 4096, current(), 0));
}

PUBLIC hipError_t hipExternalMemoryGetMappedBuffer(void **address, void *memory, const void *part)
{
	(void)memory;
	(void)part;
	return result(allocate_range(address, 4096, current(), 0));
}

/* Every kind of array: the elements of all levels, without padding. */
struct array {
	int device;
	size_t bytes;
};

static hipError_t new_array(void **array, struct extent extent, size_t element, unsigned levels)
{
	struct array *made;
	size_t bytes = 0;

	for (unsigned level = 0; level < levels; level++) {
		bytes += (extent.width ? extent.width : 1) * (extent.height ? extent.height : 1) *
			 (extent.depth ? extent.depth : 1) * element;
		extent = (struct extent){extent.width / 2, extent.height / 2, extent.depth / 2};
	}
	if (check_device(0) != hipSuccess || !take_memory(current(), bytes))
		return result(hipErrorOutOfMemory);
	made = malloc(sizeof(*made));
	*made = (struct array){current(), bytes};
	*array = made;
	return hipSuccess;
}

static hipError_t drop_array(void *array)
{
	struct array *dropped = array;

	if (!dropped)
		return result(hipErrorInvalidValue);
	give_memory(dropped->device, dropped->bytes);
	free(dropped);
	return hipSuccess;
}

static size_t element_of_channels(const int *bits)
{
	return (size_t)(bits[0] + bits[1] + bits[2] + bits[3]) / 8;
}

static size_t element_of_format(unsigned format, unsigned channels)
{
	return channels * (format == 1 || format == 8 ? 1 : format == 2 || format == 9 || format == 0x10 ? 2 : 4);
}

struct descriptor_2d {
	size_t width;
	size_t height;
	unsigned format;
	unsigned channels;
};
struct descriptor_3d {
	struct extent extent;
	unsigned format;
	unsigned channels;
	unsigned flags;
};

PUBLIC hipError_t hipMallocArray(void **array, const int *bits, size_t width, size_t height, unsigned flags)
{
	(void)flags;
	return new_array(array, (struct extent){width, height, 0}, element_of_channels(bits), 1);
}

PUBLIC hipError_t hipMalloc3DArray(void **array, const int *bits, struct extent extent, unsigned flags)
{
	(void)flags;
	return new_array(array, extent, element_of_channels(bits), 1);
}

PUBLIC hipError_t hipArrayCreate(void **array, const struct descriptor_2d *wanted)
{
	return new_array(array, (struct extent){wanted->width, wanted->height, 0},
			 element_of_format(wanted->format, wanted->channels), 1);
}

PUBLIC hipError_t hipArray3DCreate(void **array, const struct descriptor_3d *wanted)
{
	return new_array(array, wanted->extent, element_of_format(wanted->format, wanted->channels), 1);
}

PUBLIC hipError_t hipMallocMipmappedArray(void **array, const int *bits, struct extent extent, unsigned levels,
					  unsigned flags)
{
	(void)flags;
	return new_array(array, extent, element_of_channels(bits), levels);
}

PUBLIC hipError_t hipMipmappedArrayCreate(void **array, struct descriptor_3d *wanted, unsigned levels)
{
	return new_array(array, wanted->extent, element_of_format(wanted->format, wanted->channels), levels);
}

PUBLIC hipError_t hipFreeArray(void *array)
{
	return drop_array(array);
}

PUBLIC hipError_t hipArrayDestroy(void *array)
{
	return drop_array(array);
}

PUBLIC hipError_t hipFreeMipmappedArray(void *array)
{
	return drop_array(array);
}

PUBLIC hipError_t hipMipmappedArrayDestroy(void *array)
{
	return drop_array(array);
}

/* Without the linker: nothing on the way can change the address. */
PUBLIC hipError_t hipGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status)
{
	(void)flags;
	*function = strcmp(name, "hipMalloc") == 0 ? (void *)own_malloc : NULL;
	if (status)
		*status = *function ? 0 : 1;
	return result(*function ? hipSuccess : hipErrorInvalidValue);
}

PUBLIC hipError_t hipGetDriverEntryPoint_spt(const char *name, void **function, unsigned long long flags, int *status)
{
	return hipGetDriverEntryPoint(name, function, flags, status);
}
