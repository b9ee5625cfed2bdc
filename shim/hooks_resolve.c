/* HIP's own look-ups. The function that is handed out is replaced by its value, for HIP decides by name and version which
 * one it is: hipGetDeviceProperties, for instance, may be hipGetDevicePropertiesR0600. */
#include "copies.h"
#include "hook_table.h"

static int replace(const struct hip_copy *hip, int code, void **function)
{
	if (code == HIP_SUCCESS && function && *function)
		*function = (void *)copies_entry_of(hip, *function);
	return code;
}

int hook_hipGetProcAddress(struct hip_copy *hip, const char *name, void **function, int version, uint64_t flags,
			   int *status)
{
	return replace(hip, hip->real.hipGetProcAddress(name, function, version, flags, status), function);
}

int hook_hipGetDriverEntryPoint(struct hip_copy *hip, const char *name, void **function, unsigned long long flags,
				int *status)
{
	return replace(hip, hip->real.hipGetDriverEntryPoint(name, function, flags, status), function);
}

int hook_hipGetDriverEntryPoint_spt(struct hip_copy *hip, const char *name, void **function, unsigned long long flags,
				    int *status)
{
	return replace(hip, hip->real.hipGetDriverEntryPoint_spt(name, function, flags, status), function);
}
