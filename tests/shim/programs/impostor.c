/* A library that is named like HIP, and has a hipMalloc, but is not HIP: it must be left alone. */
#include <stddef.h>

int hipMalloc(void **address, size_t bytes);
int hipMalloc(void **address, size_t bytes)
{
	*address = NULL;
	return (int)(bytes % 1000);
}
