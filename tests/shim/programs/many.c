/* Fills the memory with small pieces: no number of allocations may be too large for the books. */
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

enum { PIECE = 4096, MOST = 1 << 20 };

static void *pieces[MOST];

int main(void)
{
	size_t left = 0;
	int count = 0;
	int freed = 0;
	int code = 0;

	while (count < MOST && (code = hipMalloc(&pieces[count], PIECE)) == 0)
		count++;
	for (int i = 0; i < count; i += 2)
		freed += hipFree(pieces[i]) == 0;
	for (int i = 1; i < count; i += 2)
		freed += hipFree(pieces[i]) == 0;
	hipMemGetInfo(&left, NULL);
	printf("{\"granted\":%d,\"codeAfter\":%d,\"freed\":%d,\"left\":%zu}\n", count, code, freed, left);
	return EXIT_SUCCESS;
}
