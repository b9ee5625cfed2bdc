/* Tries the limit with HIP functions that are bound in one particular way, as a program or (-DPLUGIN) as a plugin.
 *
 *   -DBIND_DIRECT       plain calls: through the PLT, or through the GOT with -fno-plt
 *   -DBIND_TABLE        addresses stored in constant data
 *   -DBIND_DLSYM        dlopen(RTLD_LOCAL) and dlsym; the library is in HIP_LIBRARY
 *   -DBIND_GETPROC      hipGetProcAddress
 *   -DIN_CONSTRUCTOR    runs before main, or while dlopen is still at work
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

struct functions {
	int (*allocate)(void **, size_t);
	int (*release)(void *);
	int (*info)(size_t *, size_t *);
};

#if defined(BIND_DIRECT)
static int allocate(void **address, size_t bytes)
{
	return hipMalloc(address, bytes);
}
static int release(void *address)
{
	return hipFree(address);
}
static int info(size_t *free_bytes, size_t *total)
{
	return hipMemGetInfo(free_bytes, total);
}
static const struct functions *bind(void)
{
	static const struct functions functions = {allocate, release, info};

	return &functions;
}
#elif defined(BIND_TABLE)
const struct functions exported_table = {hipMalloc, hipFree, hipMemGetInfo};
static const struct functions *bind(void)
{
	return &exported_table;
}
#else
static struct functions looked_up;
static void *look_up(const char *name)
{
	void *address = NULL;
#if defined(BIND_DLSYM)
	void *library = dlopen(getenv("HIP_LIBRARY"), RTLD_NOW | RTLD_LOCAL);

	address = library ? dlsym(library, name) : NULL;
#elif defined(BIND_GETPROC)
	hipGetProcAddress(name, &address, 600, 0, NULL);
#else
#error "no way of binding chosen"
#endif
	if (!address) {
		fprintf(stderr, "%s not found\n", name);
		exit(EXIT_FAILURE);
	}
	return address;
}
static const struct functions *bind(void)
{
	looked_up.allocate = (int (*)(void **, size_t))look_up("hipMalloc");
	looked_up.release = (int (*)(void *))look_up("hipFree");
	looked_up.info = (int (*)(size_t *, size_t *))look_up("hipMemGetInfo");
	return &looked_up;
}
#endif

static void try_limit(void)
{
	const struct functions *hip = bind();
	size_t total = 0;
	size_t left = 1;
	void *all = NULL;
	void *more = NULL;
	int codes[6];

	codes[0] = hip->info(NULL, &total);
	codes[1] = hip->allocate(&all, total);
	codes[2] = hip->allocate(&more, 1);
	codes[3] = hip->info(&left, NULL);
	codes[4] = hip->release(all);
	codes[5] = hip->allocate(&all, total);
	printf("{\"total\":%zu,\"left\":%zu,\"codes\":[%d,%d,%d,%d,%d,%d]}\n", total, left, codes[0], codes[1], codes[2],
	       codes[3], codes[4], codes[5]);
	fflush(stdout);
	hip->release(all);
}

#if defined(IN_CONSTRUCTOR)
__attribute__((constructor)) static void constructor(void)
{
	try_limit();
}
#endif

void run(void);
void run(void)
{
#if !defined(IN_CONSTRUCTOR)
	try_limit();
#endif
}

#if !defined(PLUGIN)
int main(void)
{
	run();
	return EXIT_SUCCESS;
}
#endif
