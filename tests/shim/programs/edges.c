/* Arguments that HIP answers by itself. */
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

int main(void)
{
	void *address = &address;
	size_t total = 0;
	struct hip_properties properties;
	int codes[10];

	codes[0] = hipMalloc(NULL, 4096);
	codes[1] = hipMalloc(&address, 0);
	codes[2] = address == NULL ? hipFree(NULL) : -1;
	codes[3] = hipMemGetInfo(NULL, NULL);
	codes[4] = hipMemGetInfo(&total, NULL);
	codes[5] = hipMemGetInfo(NULL, &total);
	codes[6] = hipDeviceTotalMem(NULL, 0);
	codes[7] = hipGetDevicePropertiesR0600(NULL, 0);
	codes[8] = hipDeviceTotalMem(&total, 77);
	codes[9] = hipGetDevicePropertiesR0600(&properties, -1);
	printf("{\"codes\":[");
	for (int i = 0; i < 10; i++)
		printf("%s%d", i ? "," : "", codes[i]);
	printf("]}\n");
	return EXIT_SUCCESS;
}
