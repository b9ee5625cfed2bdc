/* Graphs and their memory: see graphs.h. */
#include "graphs.h"

#include "nest.h"
#include "region.h"
#include "sys.h"

enum { CAPTURE_ACTIVE = 1, NODE_MEMORY = 10, ADDRESS_BITS = 48 };

/* hipMemAllocNodeParams begins with hipMemPoolProps (88 bytes: kind, handle types, location); the size is behind what may
 * access the memory. hipGraphNodeParams has it as a union behind its 16 bytes. */
enum { LOCATION_TYPE_AT = 8, LOCATION_ID_AT = 12, SIZE_AT = 104, UNION_AT = 16 };

/* A graph can have memory on several GPUs: one entry for each, under an address that nothing else has. */
static const void *key_of(const void *graph, unsigned device)
{
	return (const void *)((uintptr_t)graph | (uintptr_t)(device + 1) << ADDRESS_BITS);
}

bool graphs_is_captured(struct hip_copy *hip, void *stream)
{
	int status = 0;

	/* The default stream cannot be captured, and asking about it disturbs captures of others. */
	return stream && hip->real.hipStreamIsCapturing &&
	       hip->real.hipStreamIsCapturing(stream, &status) == HIP_SUCCESS && status == CAPTURE_ACTIVE;
}

int graphs_close(const struct booking *booking, int code, const void *graph_or_stream)
{
	struct allocation entry = {.address = key_of(graph_or_stream, booking->device), .kind = KIND_GRAPH, .references = 1};

	if (code == HIP_SUCCESS && ledger_merge(entry.address, booking->bytes))
		return code;
	return booking_close_as(booking, code, &entry);
}

/* One use less of the graph. */
static void let_go(const void *graph)
{
	struct allocation last;

	for (unsigned device = 0; device < REGION_DEVICES; device++) {
		if (ledger_let_go(key_of(graph, device), &last))
			ledger_credit(&last);
	}
}

static void hand_over(const void *stream, const void *graph)
{
	struct allocation entry;

	for (unsigned device = 0; device < REGION_DEVICES; device++) {
		if (!ledger_take(key_of(stream, device), &entry))
			continue;
		entry.address = key_of(graph, device);
		if (!graph)
			ledger_credit(&entry);
		else if (!ledger_merge(entry.address, entry.bytes))
			ledger_put_back(&entry);
	}
}

static int add_node(struct hip_copy *hip, const char *wanted, int (*add)(NODE_PARAMETERS), NODE_PARAMETERS)
{
	struct booking booking;
	int location;
	int ordinal;
	uint64_t bytes;
	int code;

	memcpy(&location, wanted + LOCATION_TYPE_AT, sizeof(location));
	memcpy(&ordinal, wanted + LOCATION_ID_AT, sizeof(ordinal));
	memcpy(&bytes, wanted + SIZE_AT, sizeof(bytes));
	if (location != HIP_LOCATION_DEVICE || !bytes)
		return add(node, graph, before, count, parameters);
	code = booking_open_on(&booking, hip, (unsigned)ordinal, bytes);
	if (code == HIP_SUCCESS)
		code = graphs_close(&booking, add(node, graph, before, count, parameters), graph);
	return code;
}

int hook_hipGraphAddMemAllocNode(struct hip_copy *hip, NODE_PARAMETERS)
{
	int code;

	if (!graph || !parameters || !nest_enter())
		return hip->real.hipGraphAddMemAllocNode(node, graph, before, count, parameters);
	code = add_node(hip, parameters, hip->real.hipGraphAddMemAllocNode, node, graph, before, count, parameters);
	nest_leave();
	return code;
}

int hook_hipGraphAddNode(struct hip_copy *hip, NODE_PARAMETERS)
{
	int code;

	if (!graph || !parameters || *(const int *)parameters != NODE_MEMORY || !nest_enter())
		return hip->real.hipGraphAddNode(node, graph, before, count, parameters);
	code = add_node(hip, (const char *)parameters + UNION_AT, hip->real.hipGraphAddNode, node, graph, before, count,
			parameters);
	nest_leave();
	return code;
}

static int end_capture(int (*real)(void *, void **), void *stream, void **graph)
{
	int code;

	if (!stream || !graph || !nest_enter())
		return real(stream, graph);
	code = real(stream, graph);
	hand_over(stream, code == HIP_SUCCESS ? *graph : NULL);
	nest_leave();
	return code;
}

int hook_hipStreamEndCapture(struct hip_copy *hip, void *stream, void **graph)
{
	return end_capture(hip->real.hipStreamEndCapture, stream, graph);
}

int hook_hipStreamEndCapture_spt(struct hip_copy *hip, void *stream, void **graph)
{
	return end_capture(hip->real.hipStreamEndCapture_spt, stream, graph);
}

/* What can be launched needs the graph's memory too. */
static int note_exec(struct hip_copy *hip, int code, void *const *exec, const void *graph)
{
	struct allocation entry = {.owner = graph, .copy = (uint8_t)hip->index, .kind = KIND_EXEC};
	bool held = false;

	if (code != HIP_SUCCESS || !exec || !*exec)
		return code;
	for (unsigned device = 0; device < REGION_DEVICES; device++)
		held |= ledger_hold(key_of(graph, device));
	entry.address = *exec;
	if (held && ledger_reserve_held(0, 0))
		ledger_commit(&entry);
	return code;
}

int hook_hipGraphInstantiate(struct hip_copy *hip, void **exec, void *graph, void **fault, char *log, size_t size)
{
	int code;

	if (!nest_enter())
		return hip->real.hipGraphInstantiate(exec, graph, fault, log, size);
	code = note_exec(hip, hip->real.hipGraphInstantiate(exec, graph, fault, log, size), exec, graph);
	nest_leave();
	return code;
}

int hook_hipGraphInstantiateWithFlags(struct hip_copy *hip, void **exec, void *graph, unsigned long long flags)
{
	int code;

	if (!nest_enter())
		return hip->real.hipGraphInstantiateWithFlags(exec, graph, flags);
	code = note_exec(hip, hip->real.hipGraphInstantiateWithFlags(exec, graph, flags), exec, graph);
	nest_leave();
	return code;
}

int hook_hipGraphInstantiateWithParams(struct hip_copy *hip, void **exec, void *graph, void *parameters)
{
	int code;

	if (!nest_enter())
		return hip->real.hipGraphInstantiateWithParams(exec, graph, parameters);
	code = note_exec(hip, hip->real.hipGraphInstantiateWithParams(exec, graph, parameters), exec, graph);
	nest_leave();
	return code;
}

int hook_hipGraphExecDestroy(struct hip_copy *hip, void *exec)
{
	struct allocation entry;
	bool known;
	int code;

	if (!exec || !nest_enter())
		return hip->real.hipGraphExecDestroy(exec);
	known = ledger_take(exec, &entry);
	code = hip->real.hipGraphExecDestroy(exec);
	if (known && code != HIP_SUCCESS) {
		ledger_put_back(&entry);
	} else if (known) {
		let_go(entry.owner);
		ledger_credit(&entry);
	}
	nest_leave();
	return code;
}

int hook_hipGraphDestroy(struct hip_copy *hip, void *graph)
{
	int code;

	if (!graph || !nest_enter())
		return hip->real.hipGraphDestroy(graph);
	code = hip->real.hipGraphDestroy(graph);
	if (code == HIP_SUCCESS)
		let_go(graph);
	nest_leave();
	return code;
}
