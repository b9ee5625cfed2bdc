/* The runtime is asked anew each time. An answer that was kept could be wrong after the program has shut the runtime down
 * and started it again, and the questions are cheap beside an allocation. */
#include "hsa_devices.h"

#include "devices.h"
#include "region.h"
#include "sys.h"

enum {
	AGENT_DEVICE = 17,
	AGENT_LOCATION = 0xA006,
	AGENT_DOMAIN = 0xA00F,
	AGENT_UUID = 0xA011,
	DEVICE_GPU = 1,
	/* The same for pools and regions. */
	MEMORY_SEGMENT = 0,
	SEGMENT_GLOBAL = 0,
	UUID_TEXT_SIZE = 64,
	UUID_PREFIX = 4, /* "GPU-" */
};

/* Where HsaNodeProperties has what is needed here (thunk headers 5.0 to 7.x), in a buffer that is longer than any. */
enum { NODE_GPU_CORES = 4, NODE_LOCATION = 76, NODE_DOMAIN = 324, NODE_UNIQUE_ID = 328, NODE_SIZE = 4096 };
/* HsaMemFlags: memory of the GPU is never paged, and neither its scratch nor its registers. */
enum { FLAG_NON_PAGED = 1 << 0, FLAG_GDS = 1 << 8, FLAG_SCRATCH = 1 << 9 };

static bool is_gpu(struct hsa_copy *hsa, uint64_t agent)
{
	int kind = -1;

	return hsa->real.hsa_agent_get_info(agent, AGENT_DEVICE, &kind) == HSA_SUCCESS && kind == DEVICE_GPU;
}

static int number_of_agent(struct hsa_copy *hsa, uint64_t agent)
{
	struct device_name name = {0};
	char uuid[UUID_TEXT_SIZE] = "";

	hsa->real.hsa_agent_get_info(agent, AGENT_LOCATION, &name.location);
	hsa->real.hsa_agent_get_info(agent, AGENT_DOMAIN, &name.domain);
	if (hsa->real.hsa_agent_get_info(agent, AGENT_UUID, uuid) == HSA_SUCCESS)
		name.uuid = devices_uuid(uuid + UUID_PREFIX);
	return region_device(devices_id(&name));
}

/* The lists of an agent's pools and of its regions look alike. */
typedef int (*memory_list)(uint64_t agent, hsa_visitor visit, void *context);
typedef int (*memory_question)(uint64_t memory, int attribute, void *value);

struct search {
	struct hsa_copy *hsa;
	memory_list list;
	memory_question ask;
	uint64_t memory; /* a pool or region; 0: the agent itself is looked for */
	uint64_t agent;
	bool found;
	struct hsa_place place;
};

static int visit_memory(uint64_t memory, void *context)
{
	struct search *search = context;
	int segment = -1;

	if (memory != search->memory)
		return HSA_SUCCESS;
	search->found = search->ask(memory, MEMORY_SEGMENT, &segment) == HSA_SUCCESS && segment == SEGMENT_GLOBAL;
	return HSA_INFO_BREAK;
}

static int visit_agent(uint64_t agent, void *context)
{
	struct search *search = context;

	if (!is_gpu(search->hsa, agent))
		return HSA_SUCCESS;
	if (search->list)
		search->list(agent, visit_memory, search);
	else
		search->found = agent == search->agent;
	if (!search->found) {
		search->place.ordinal++;
		return HSA_SUCCESS;
	}
	search->place.on_gpu = true;
	search->place.device = number_of_agent(search->hsa, agent);
	return HSA_INFO_BREAK;
}

static struct hsa_place find(struct search *search)
{
	if (search->hsa->real.hsa_iterate_agents)
		search->hsa->real.hsa_iterate_agents(visit_agent, search);
	return search->place;
}

struct hsa_place hsa_devices_of_agent(struct hsa_copy *hsa, uint64_t agent)
{
	return find(&(struct search){.hsa = hsa, .agent = agent});
}

struct hsa_place hsa_devices_of_pool(struct hsa_copy *hsa, uint64_t pool)
{
	return find(&(struct search){.hsa = hsa,
				     .list = hsa->real.hsa_amd_agent_iterate_memory_pools,
				     .ask = hsa->real.hsa_amd_memory_pool_get_info,
				     .memory = pool});
}

struct hsa_place hsa_devices_of_region(struct hsa_copy *hsa, uint64_t region)
{
	return find(&(struct search){.hsa = hsa,
				     .list = hsa->real.hsa_agent_iterate_regions,
				     .ask = hsa->real.hsa_region_get_info,
				     .memory = region});
}

static uint32_t word_at(const char *properties, size_t offset)
{
	uint32_t word;

	memcpy(&word, properties + offset, sizeof(word));
	return word;
}

static bool read_node(struct hsa_copy *hsa, uint32_t node, char *properties)
{
	memset(properties, 0, NODE_SIZE);
	return hsa->real.hsaKmtGetNodeProperties && hsa->real.hsaKmtGetNodeProperties(node, properties) == 0;
}

/* The nodes of processors without a GPU come in between. */
static unsigned gpus_before(struct hsa_copy *hsa, uint32_t node, char *properties)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < node; i++)
		count += read_node(hsa, i, properties) && word_at(properties, NODE_GPU_CORES) != 0;
	return count;
}

struct hsa_place hsa_devices_of_node(struct hsa_copy *hsa, uint32_t node, uint32_t flags)
{
	struct hsa_place place = {0};
	struct device_name name = {0};
	char properties[NODE_SIZE];

	if (!(flags & FLAG_NON_PAGED) || flags & (FLAG_GDS | FLAG_SCRATCH) || !read_node(hsa, node, properties) ||
	    !word_at(properties, NODE_GPU_CORES))
		return place;
	name.location = word_at(properties, NODE_LOCATION);
	name.domain = word_at(properties, NODE_DOMAIN);
	memcpy(&name.uuid, properties + NODE_UNIQUE_ID, sizeof(name.uuid));
	place.on_gpu = true;
	place.device = region_device(devices_id(&name));
	place.ordinal = gpus_before(hsa, node, properties);
	return place;
}
