/* The table of who holds what by itself, as an ordinary program, so that sanitizers can look: ledger_unit <folder> <seed>
 *
 * Threads book, commit, take, put back, hold, let go, map and sweep entries at random. Then everything is given back, and
 * the accounts have to be empty. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "handles.h"
#include "ledger.h"
#include "region.h"

enum { THREADS = 8, OWN = 600, STEPS = 12000, PAGE = 4096, GPUS = 2 };
#define PLENTY ((uint64_t)1 << 40)

struct own {
	unsigned seed;
	unsigned first; /* address, divided by a page */
	int references[OWN];
	bool mapped[OWN];
	bool fault;
};

static const void *address_of(const struct own *own, int index)
{
	return (const void *)(uintptr_t)((own->first + (unsigned)index) * (uint64_t)PAGE);
}

static const void *place_of(const struct own *own, int index)
{
	return (const char *)address_of(own, index) + ((uint64_t)1 << 40);
}

static void make(struct own *own, int index)
{
	struct allocation made = {
		.address = address_of(own, index),
		.bytes = PAGE,
		.device = (uint16_t)(index % GPUS),
		.kind = KIND_HANDLE,
		.references = 1,
	};

	if (!ledger_reserve(made.device, made.bytes, PLENTY)) {
		own->fault = true;
		return;
	}
	if (rand_r(&own->seed) % 8 == 0) {
		ledger_cancel(made.device, made.bytes);
		return;
	}
	ledger_commit(&made);
	own->references[index] = 1;
}

static void map(struct own *own, int index)
{
	handles_mapped(place_of(own, index), PAGE, address_of(own, index), 0);
	own->mapped[index] = true;
	own->references[index]++;
}

static void unmap(struct own *own, int index)
{
	handles_unmapped(place_of(own, index), PAGE);
	own->mapped[index] = false;
	own->references[index]--;
}

static void release(struct own *own, int index)
{
	struct handle_release release;
	bool fails = rand_r(&own->seed) % 8 == 0;

	handles_begin_release(&release, address_of(own, index));
	if (!release.known || release.was_last != (own->references[index] == 1))
		own->fault = true;
	handles_end_release(&release, fails);
	own->references[index] -= !fails;
}

static void step(struct own *own, int index)
{
	struct allocation found;
	bool known = ledger_look_up(address_of(own, index), &found);

	if (known != (own->references[index] > 0) || (known && (int)found.references != own->references[index]))
		own->fault = true;
	if (!own->references[index])
		make(own, index);
	else if (own->mapped[index] && rand_r(&own->seed) % 2)
		unmap(own, index);
	else if (!own->mapped[index] && rand_r(&own->seed) % 4 == 0)
		map(own, index);
	else if (own->references[index] > own->mapped[index])
		release(own, index);
}

static void *work(void *context)
{
	struct own *own = context;

	for (int i = 0; i < STEPS; i++)
		step(own, rand_r(&own->seed) % OWN);
	for (int i = 0; i < OWN; i++) {
		if (own->mapped[i])
			unmap(own, i);
		while (own->references[i] > 0)
			release(own, i);
	}
	return NULL;
}

static bool is_gone(const struct allocation *allocation, void *context)
{
	(void)context;
	return allocation->kind == KIND_PLAIN;
}

/* Entries that only a sweep finds, between others that stay. */
static uint64_t swept(void)
{
	for (int i = 1; i <= OWN; i++) {
		struct allocation made = {
			.address = (const void *)(uintptr_t)(i * (uint64_t)PAGE),
			.bytes = PAGE,
			.kind = i % 3 ? KIND_PLAIN : KIND_POOLED,
		};

		ledger_reserve(0, PAGE, PLENTY);
		ledger_commit(&made);
	}
	ledger_sweep(is_gone, NULL);
	return region_used(0) / PAGE;
}

int main(int argc, char **argv)
{
	static struct own own[THREADS];
	pthread_t threads[THREADS];
	bool fault = false;

	if (argc != 3 || !region_init(argv[1]) || !ledger_init())
		return 2;
	for (uint64_t gpu = 0; gpu < GPUS; gpu++)
		region_device(gpu + 1);
	for (unsigned i = 0; i < THREADS; i++) {
		own[i].seed = (unsigned)atoi(argv[2]) * THREADS + i + 1;
		own[i].first = 1 + i * OWN;
		pthread_create(&threads[i], NULL, work, &own[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		fault |= own[i].fault;
	}
	printf("{\"fault\":%s,\"left\":[%lu,%lu]", fault ? "true" : "false", region_used(0), region_used(1));
	printf(",\"swept_to\":%lu}\n", swept());
	return 0;
}
