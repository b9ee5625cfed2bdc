/* The shared accounts by themselves, as an ordinary program, so that sanitizers can look: region_unit <scene> <folder> ...
 *
 *   threads <folder>          64 threads take and give back; the limit is never passed
 *   processes <folder> <n>    n processes do the same
 *   crowd <folder> <n>        n processes hold something at the same time, more than there are slots
 *   scribble <folder> <seed>  somebody writes garbage into the file between the steps
 *   path <root>               where the accounts of a container with this root are
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region.h"

enum { THREADS = 64, ROUNDS = 300, PAGE = 4096, LIMIT = 1000 * PAGE, STEPS = 400 };

/* What the program knows by itself, for all of its processes. */
struct known {
	uint64_t held;
	uint64_t most;
	int granted;
};
static struct known *known;

static void note(uint64_t bytes)
{
	uint64_t now = __atomic_add_fetch(&known->held, bytes, __ATOMIC_SEQ_CST);
	uint64_t seen = __atomic_load_n(&known->most, __ATOMIC_SEQ_CST);

	while (seen < now && !__atomic_compare_exchange_n(&known->most, &seen, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void *take_and_give(void *seed_of)
{
	unsigned seed = (unsigned)(uintptr_t)seed_of;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t bytes = (uint64_t)(1 + rand_r(&seed) % 60) * PAGE;

		if (!region_charge(0, bytes, LIMIT))
			continue;
		note(bytes);
		__atomic_fetch_add(&known->granted, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_sub(&known->held, bytes, __ATOMIC_SEQ_CST);
		region_credit(0, bytes);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t workers[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&workers[i], NULL, take_and_give, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i], NULL);
}

static void processes(int count)
{
	for (int i = 0; i < count; i++) {
		if (fork() == 0) {
			for (int round = 0; round < 10; round++)
				take_and_give((void *)(uintptr_t)(i * 100 + round));
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
}

static void print_known(void)
{
	printf("{\"within\":%s,\"some\":%s,\"left\":%llu}\n", known->most <= LIMIT ? "true" : "false",
	       known->granted ? "true" : "false", (unsigned long long)region_used(0));
}

/* A child that holds `bytes`, says so and waits to be killed. */
static pid_t hold(uint64_t bytes, int told[2])
{
	pid_t child = fork();
	char ok;

	if (child == 0) {
		ok = region_charge(0, bytes, LIMIT) ? 'y' : 'n';
		if (write(told[1], &ok, 1) == 1)
			pause();
		_exit(1);
	}
	return child;
}

static void crowd(int count)
{
	pid_t *children = calloc((size_t)count, sizeof(*children));
	int told[2];
	int yes = 0;
	char ok;

	/* Takes the first slot, so that all of the children's can be free again. */
	region_used(0);
	if (pipe(told) != 0)
		exit(1);
	for (int i = 0; i < count; i++)
		children[i] = hold(PAGE, told);
	for (int i = 0; i < count; i++)
		yes += read(told[0], &ok, 1) == 1 && ok == 'y';
	printf("{\"granted\":%d,\"pages\":%d,\"over\":%s", yes, (int)(region_used(0) / PAGE),
	       region_charge(0, LIMIT, LIMIT) ? "true" : "false");
	for (int i = 0; i < count; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	printf(",\"after\":%s}\n", region_charge(0, LIMIT, LIMIT) ? "true" : "false");
	free(children);
}

/* Some bytes anywhere, or all of them; never another length, which would take the memory from under the processes. */
static void scribble(const char *folder, unsigned *seed)
{
	char path[512];
	char garbage[64];
	struct stat file;
	int fd;

	snprintf(path, sizeof(path), "%s/region", folder);
	fd = open(path, O_RDWR);
	if (fd < 0 || fstat(fd, &file) != 0)
		exit(1);
	for (int i = 0; i < 40; i++) {
		long at = rand_r(seed) % (i % 2 ? 4096 : file.st_size - 64);

		for (size_t b = 0; b < sizeof(garbage); b++)
			garbage[b] = (char)(rand_r(seed) % 3 ? rand_r(seed) : 0);
		if (pwrite(fd, garbage, sizeof(garbage), at) != (long)sizeof(garbage))
			exit(1);
	}
	close(fd);
}

/* Every process may go wrong for a while, but nobody crashes, hangs or passes the limit alone. */
static void between_scribbles(const char *folder, unsigned seed)
{
	uint64_t mine = 0;
	int steps = 0;

	for (; steps < STEPS; steps++) {
		uint64_t bytes = (uint64_t)(1 + rand_r(&seed) % 500) * PAGE;

		if (rand_r(&seed) % 10 == 0)
			scribble(folder, &seed);
		if (mine && rand_r(&seed) % 2) {
			region_credit(0, mine);
			mine = 0;
		} else if (bytes <= LIMIT - mine && region_charge(0, bytes, LIMIT)) {
			mine += bytes;
		}
		region_used(0);
		region_device((uint64_t)rand_r(&seed));
	}
	printf("{\"steps\":%d}\n", steps);
}

int main(int argc, char **argv)
{
	const char *scene = argc > 2 ? argv[1] : "";
	char path[REGION_PATH_SIZE];

	alarm(100);
	if (strcmp(scene, "path") == 0) {
		puts(region_default_path(path, argv[2]) ? path : "none");
		return 0;
	}
	if (argc < 3 || !region_init(argv[2]))
		return 2;
	known = mmap(NULL, sizeof(*known), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (strcmp(scene, "threads") == 0)
		threads();
	else if (strcmp(scene, "processes") == 0)
		processes(atoi(argv[3]));
	else if (strcmp(scene, "crowd") == 0)
		crowd(atoi(argv[3]));
	else if (region_device(1) == 0)
		between_scribbles(argv[2], (unsigned)atoi(argv[3]));
	if (known->most)
		print_known();
	return 0;
}
