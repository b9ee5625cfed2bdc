/* One process of a container, led by its standard input, one command and one answer per line:
 *
 *   malloc <device> <bytes>   code and number of the piece       free <number>   code
 *   info <device>             free and total bytes               pid             its process id
 *   fork                      a child goes on; when it ends, the parent says "back" and goes on itself
 *   exec                      the program starts anew in the same process
 *   leave                     the first thread ends, a second one goes on
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_api.h"

enum { PIECES = 1 << 16 };

static char **arguments;
static void *pieces[PIECES];
static int piece_count;

static void *serve(void *unused);

static void allocate(const char *line)
{
	size_t bytes = 0;
	int device = 0;
	int code;

	sscanf(line, "%*s %d %zu", &device, &bytes);
	hipSetDevice(device);
	code = hipMalloc(&pieces[piece_count], bytes);
	printf("%d %d\n", code, code == 0 ? piece_count++ : -1);
}

static void info(const char *line)
{
	size_t free_bytes = 0;
	size_t total = 0;
	int device = 0;

	sscanf(line, "%*s %d", &device);
	hipSetDevice(device);
	hipMemGetInfo(&free_bytes, &total);
	printf("%zu %zu\n", free_bytes, total);
}

static void fork_and_wait(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		printf("child\n");
		return;
	}
	waitpid(child, NULL, 0);
	printf("back\n");
}

static void leave(void)
{
	pthread_t second;

	printf("left\n");
	fflush(stdout);
	pthread_create(&second, NULL, serve, NULL);
	pthread_exit(NULL);
}

static void answer(const char *line)
{
	if (strncmp(line, "malloc", 6) == 0)
		allocate(line);
	else if (strncmp(line, "free", 4) == 0)
		printf("%d\n", hipFree(pieces[atoi(line + 5)]));
	else if (strncmp(line, "info", 4) == 0)
		info(line);
	else if (strncmp(line, "pid", 3) == 0)
		printf("%d\n", (int)getpid());
	else if (strncmp(line, "fork", 4) == 0)
		fork_and_wait();
	else if (strncmp(line, "exec", 4) == 0)
		execv("/proc/self/exe", arguments);
	else if (strncmp(line, "leave", 5) == 0)
		leave();
	fflush(stdout);
}

/* Not through stdio's buffer: a forked child or a new program must find the next line. */
static int read_line(char *line, size_t size)
{
	size_t length = 0;

	while (length + 1 < size && read(0, line + length, 1) == 1) {
		if (line[length++] == '\n') {
			line[length] = '\0';
			return 1;
		}
	}
	return 0;
}

static void *serve(void *unused)
{
	char line[128];

	(void)unused;
	while (read_line(line, sizeof(line)))
		answer(line);
	exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
	(void)argc;
	arguments = argv;
	printf("ready\n");
	fflush(stdout);
	serve(NULL);
}
