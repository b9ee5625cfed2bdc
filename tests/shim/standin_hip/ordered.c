/* STAND-IN for parts of libamdhip64 (see standin_hip.c): streams, pools of stream-ordered memory, and graphs.
 * Nothing runs, so everything in a stream has happened when the call returns; only giving memory back waits for a
 * synchronisation, as in HIP. */
#include <pthread.h>
#include <stdlib.h>

#include "standin.h"

#define PUBLIC __attribute__((visibility("default")))

enum { GROWTH = 65536 };

struct pool {
	int device;
	uint64_t reserved;
	uint64_t used;
	uint64_t threshold;
	struct pool *next;
};
struct piece {
	void *address;
	size_t bytes;
	struct pool *pool;
	struct piece *next;
};
struct graph {
	size_t bytes[MAX_DEVICES];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pool *defaults[MAX_DEVICES];
static struct pool *pools;
static struct piece *pieces;
static struct stream *streams;
static __thread int capture_mode; /* 0: global, 1: of this thread, 2: relaxed */

static struct pool *new_pool(int device)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	pool->device = device;
	pool->next = pools;
	pools = pool;
	return pool;
}

static struct pool *default_pool(int device)
{
	if (!defaults[device])
		defaults[device] = new_pool(device);
	return defaults[device];
}

/* Gives idle memory back until `keep` is reserved. */
static void shrink(struct pool *pool, uint64_t keep)
{
	uint64_t least = keep > pool->used ? keep : pool->used;

	if (pool->reserved <= least)
		return;
	give_memory(pool->device, pool->reserved - least);
	pool->reserved = least;
}

static hipError_t from_pool(void **address, size_t bytes, struct pool *pool)
{
	/* In pieces: what is idle is of no use. */
	uint64_t idle = getenv("STANDIN_HIP_PIECES") ? 0 : pool->reserved - pool->used;
	size_t grown = bytes > idle ? (bytes - idle + GROWTH - 1) / GROWTH * GROWTH : 0;
	struct piece *piece;

	if (!take_memory(pool->device, grown))
		return hipErrorOutOfMemory;
	pool->reserved += grown;
	pool->used += bytes;
	piece = malloc(sizeof(*piece));
	*piece = (struct piece){NULL, bytes, pool, pieces};
	allocate_range(&piece->address, bytes, pool->device, 0);
	pieces = piece;
	*address = piece->address;
	return hipSuccess;
}

bool release_to_pool(void *address)
{
	bool found = false;

	/* Not even the lock is touched, which a forked child could find held. */
	if (!__atomic_load_n(&pieces, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&mutex);
	for (struct piece **link = &pieces; *link && !found; link = found ? link : &(*link)->next) {
		struct piece *piece = *link;

		if (piece->address != address)
			continue;
		found = true;
		*link = piece->next;
		piece->pool->used -= piece->bytes;
		release(address);
		free(piece);
	}
	pthread_mutex_unlock(&mutex);
	return found;
}

void reset_pools(int device)
{
	pthread_mutex_lock(&mutex);
	for (struct piece **link = &pieces; *link;) {
		struct piece *piece = *link;

		if (piece->pool->device == device) {
			*link = piece->next;
			piece->pool->used -= piece->bytes;
			release(piece->address);
		} else {
			link = &piece->next;
		}
	}
	for (struct pool *pool = pools; pool; pool = pool->next) {
		if (pool->device == device)
			shrink(pool, 0);
	}
	pthread_mutex_unlock(&mutex);
}

PUBLIC hipError_t hipDeviceGetMemPool(struct pool **pool, int device)
{
	pthread_mutex_lock(&mutex);
	*pool = default_pool(device);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipDeviceGetDefaultMemPool(struct pool **pool, int device)
{
	return hipDeviceGetMemPool(pool, device);
}

PUBLIC hipError_t hipMallocFromPoolAsync(void **address, size_t bytes, struct pool *pool, struct stream *stream)
{
	hipError_t code = check_device(pool->device);

	if (code != hipSuccess)
		return result(code);
	if (stream && stream->captured)
		return result(add_memory_node(stream->captured, pool->device, bytes, address));
	pthread_mutex_lock(&mutex);
	code = from_pool(address, bytes, pool);
	pthread_mutex_unlock(&mutex);
	return result(code);
}

PUBLIC hipError_t hipMallocAsync(void **address, size_t bytes, struct stream *stream)
{
	struct pool *pool;
	hipError_t code = check_device(0);

	if (code != hipSuccess)
		return result(code);
	hipDeviceGetMemPool(&pool, stream ? stream->device : current());
	return hipMallocFromPoolAsync(address, bytes, pool, stream);
}

PUBLIC hipError_t hipFreeAsync(void *address, struct stream *stream)
{
	if (stream && stream->captured)
		return hipSuccess;
	return result(release_to_pool(address) ? hipSuccess : release(address));
}

PUBLIC hipError_t hipStreamSynchronize(struct stream *stream)
{
	(void)stream;
	pthread_mutex_lock(&mutex);
	for (struct pool *pool = pools; pool; pool = pool->next)
		shrink(pool, pool->threshold);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemPoolCreate(struct pool **pool, const int *properties)
{
	pthread_mutex_lock(&mutex);
	*pool = new_pool(properties[3]);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

/* What is still in use stays; the idle rest goes. */
PUBLIC hipError_t hipMemPoolDestroy(struct pool *pool)
{
	pthread_mutex_lock(&mutex);
	pool->threshold = 0;
	shrink(pool, 0);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemPoolTrimTo(struct pool *pool, size_t keep)
{
	pthread_mutex_lock(&mutex);
	shrink(pool, keep);
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemPoolSetAttribute(struct pool *pool, int attribute, uint64_t *value)
{
	if (attribute == 4)
		pool->threshold = *value;
	return hipSuccess;
}

PUBLIC hipError_t hipMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value)
{
	pthread_mutex_lock(&mutex);
	*value = attribute == 5 ? pool->reserved : attribute == 7 ? pool->used : pool->threshold;
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipMemPoolImportPointer(void **address, struct pool *pool, void *exported)
{
	(void)exported;
	return result(allocate_range(address, 4096, pool->device, 0));
}

PUBLIC hipError_t hipStreamCreate(struct stream **stream)
{
	*stream = calloc(1, sizeof(**stream));
	(*stream)->device = current();
	pthread_mutex_lock(&mutex);
	(*stream)->next = streams;
	streams = *stream;
	pthread_mutex_unlock(&mutex);
	return hipSuccess;
}

PUBLIC hipError_t hipStreamGetDevice(struct stream *stream, int *device)
{
	*device = stream->device;
	return hipSuccess;
}

PUBLIC hipError_t hipThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return hipSuccess;
}

bool captures_allow(void)
{
	bool allowed = true;

	if (capture_mode == 2 || !__atomic_load_n(&streams, __ATOMIC_RELAXED))
		return true;
	pthread_mutex_lock(&mutex);
	for (struct stream *stream = streams; stream; stream = stream->next) {
		if (!stream->captured)
			continue;
		stream->spoilt = true;
		allowed = false;
	}
	pthread_mutex_unlock(&mutex);
	return allowed;
}

PUBLIC hipError_t hipStreamBeginCapture(struct stream *stream, int mode)
{
	(void)mode;
	stream->captured = calloc(1, sizeof(struct graph));
	return hipSuccess;
}

PUBLIC hipError_t hipStreamIsCapturing(struct stream *stream, int *status)
{
	*status = stream && stream->captured ? 1 + stream->spoilt : 0;
	return hipSuccess;
}

PUBLIC hipError_t hipStreamEndCapture(struct stream *stream, struct graph **graph)
{
	bool spoilt = stream->spoilt;

	*graph = spoilt ? NULL : stream->captured;
	stream->captured = NULL;
	stream->spoilt = false;
	if (spoilt)
		return result(hipErrorStreamCaptureInvalidated);
	return *graph ? hipSuccess : result(hipErrorUnknown);
}

PUBLIC hipError_t hipStreamEndCapture_spt(struct stream *stream, struct graph **graph)
{
	return hipStreamEndCapture(stream, graph);
}

PUBLIC hipError_t hipGraphCreate(struct graph **graph, unsigned flags)
{
	(void)flags;
	*graph = calloc(1, sizeof(**graph));
	return hipSuccess;
}

/* The GPU loses the memory when the graph is launched; the stand-in launches nothing. */
hipError_t add_memory_node(struct graph *graph, int device, size_t bytes, void **address)
{
	graph->bytes[device] += bytes;
	check_device(device);
	return allocate_range(address, bytes, device, 0);
}

static hipError_t add_node(void **node, struct graph *graph, char *parameters)
{
	*node = graph;
	return result(add_memory_node(graph, *(int *)(parameters + 12), *(size_t *)(parameters + 104),
				      (void **)(parameters + 112)));
}

PUBLIC hipError_t hipGraphAddMemAllocNode(void **node, struct graph *graph, const void *before, size_t count,
					  char *parameters)
{
	(void)before;
	(void)count;
	return add_node(node, graph, parameters);
}

PUBLIC hipError_t hipGraphAddNode(void **node, struct graph *graph, const void *before, size_t count, char *parameters)
{
	(void)before;
	(void)count;
	*node = graph;
	return *(int *)parameters == 10 ? add_node(node, graph, parameters + 16) : hipSuccess;
}

static hipError_t instantiate(void **exec, const struct graph *graph)
{
	*exec = calloc(1, 1);
	return graph ? hipSuccess : result(hipErrorInvalidValue);
}

PUBLIC hipError_t hipGraphInstantiate(void **exec, struct graph *graph, void **fault, char *log, size_t size)
{
	(void)fault;
	(void)log;
	(void)size;
	return instantiate(exec, graph);
}

PUBLIC hipError_t hipGraphInstantiateWithFlags(void **exec, struct graph *graph, unsigned long long flags)
{
	(void)flags;
	return instantiate(exec, graph);
}

PUBLIC hipError_t hipGraphInstantiateWithParams(void **exec, struct graph *graph, void *parameters)
{
	(void)parameters;
	return instantiate(exec, graph);
}

PUBLIC hipError_t hipGraphExecDestroy(void *exec)
{
	free(exec);
	return hipSuccess;
}

PUBLIC hipError_t hipGraphDestroy(struct graph *graph)
{
	free(graph);
	return hipSuccess;
}
