/* Looks for a GPU and its memory in the way of the HSA runtime's lists, and allocates in the callback, as the last thing it
 * does there: the call returns into the runtime. Tells the code. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICE = 17, TOO_MUCH = 100 << 20, FOUND = 1 };

typedef int (*visitor)(uint64_t each, void *context);
int hsa_init(void);
int hsa_iterate_agents(visitor visit, void *context);
int hsa_agent_get_info(uint64_t agent, int attribute, void *value);
int hsa_amd_agent_iterate_memory_pools(uint64_t agent, visitor visit, void *context);
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void **address);

static int code;
static void *address;

static int allocate(uint64_t pool, void *context)
{
	(void)context;
	return hsa_amd_memory_pool_allocate(pool, TOO_MUCH, 0, &address);
}

static int visit_agent(uint64_t agent, void *context)
{
	int is_gpu = 0;

	hsa_agent_get_info(agent, DEVICE, &is_gpu);
	if (!is_gpu)
		return 0;
	code = hsa_amd_agent_iterate_memory_pools(agent, allocate, context);
	return FOUND;
}

int main(void)
{
	hsa_init();
	hsa_iterate_agents(visit_agent, NULL);
	printf("{\"code\":%d,\"taken\":%s}\n", code, address ? "true" : "false");
	return EXIT_SUCCESS;
}
