/* Random environments for the reader of settings, which is compared with getenv and strtoull: env_unit <seed> <rounds>
 *
 * A child is started for each, because the reader looks at the environment a process was started with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "limit.h"

#define NAME "HIP_DEVICE_MEMORY_LIMIT"

enum { MOST_ENTRIES = 40, MOST_BYTES = 9000 };

/* What the setting means, by other means. */
static unsigned long long expected(const char *text)
{
	unsigned long long number;
	int shift = 0;
	char *end;

	if (!text)
		return ~0ULL;
	if (*text < '0' || *text > '9' || strlen(text) > 255)
		return 0;
	number = strtoull(text, &end, 10);
	if (*end)
		shift = strchr("kK", *end) ? 10 : strchr("mM", *end) ? 20 : strchr("gG", *end) ? 30 : -1;
	if (shift < 0 || (*end && end[1]) || strlen(text) > 18 || number > ~0ULL >> shift)
		return 0;
	return number << shift & ~4095ULL;
}

static int check(void)
{
	limit_init();
	if (limit_bytes(0) == expected(getenv(NAME)))
		return EXIT_SUCCESS;
	fprintf(stderr, "'%s' is read as %llu\n", getenv(NAME), (unsigned long long)limit_bytes(0));
	return EXIT_FAILURE;
}

static char *random_entry(unsigned *seed)
{
	static const char letters[] = "0123456789kKmMgG=HIP_DEVICE_MEMORY_LIMIT \n";
	size_t length = (size_t)rand_r(seed) % (rand_r(seed) % 8 ? 12 : MOST_BYTES);
	char *entry = malloc(sizeof(NAME) + 1 + length + 1);
	size_t at = 0;

	if (rand_r(seed) % 3) {
		at = (size_t)sprintf(entry, "%.*s", rand_r(seed) % 4 ? 99 : rand_r(seed) % (int)sizeof(NAME), NAME);
		entry[at++] = '=';
	}
	for (size_t i = 0; i < length; i++)
		entry[at++] = letters[(size_t)rand_r(seed) % (rand_r(seed) % 3 ? 16 : sizeof(letters) - 1)];
	entry[at] = '\0';
	return entry;
}

static int run_child(char *program, unsigned *seed)
{
	char *entries[MOST_ENTRIES + 1] = {NULL};
	int count = rand_r(seed) % MOST_ENTRIES;
	int status = -1;
	pid_t child;

	for (int i = 0; i < count; i++)
		entries[i] = random_entry(seed);
	child = fork();
	if (child == 0) {
		execve("/proc/self/exe", (char *[]){program, NULL}, entries);
		_exit(127);
	}
	waitpid(child, &status, 0);
	for (int i = 0; i < count; i++)
		free(entries[i]);
	return status == 0;
}

int main(int argc, char **argv)
{
	unsigned seed = argc == 3 ? (unsigned)atoi(argv[1]) : 0;
	int rounds = argc == 3 ? atoi(argv[2]) : 0;
	int good = 0;

	if (argc < 3)
		return check();
	for (int i = 0; i < rounds; i++)
		good += run_child(argv[0], &seed);
	printf("{\"good\":%d}\n", good);
	return EXIT_SUCCESS;
}
