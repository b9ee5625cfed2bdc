/* A small HIP program: it reports what it sees of its GPUs, and tries their memory limits. It is linked to libamdhip64 like any
 * application, and needs nothing but that and libc, so that it runs in a tiny container image.
 *
 *   client report   the GPUs, the environment and the device files, as this process sees them
 *   client limit    on each GPU: all of its memory in one piece, one byte more, and the same again after freeing
 *   client hold     both, then keeps all memory of each GPU until SIGTERM
 *
 * It prints one JSON object per line. The exit status is 0 when HIP answered every call that has to succeed. */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "hip_api.h"

enum { MAX_DEVICES = 256 };

extern char **environ;

static bool failed;

static void print_string(const char *text, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < ' ')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void end_line(void)
{
	putchar('\n');
	fflush(stdout);
}

/* Notes a code that should have been 0. */
static int must(int code, const char *call)
{
	if (code != 0) {
		fprintf(stderr, "client: %s returns %d\n", call, code);
		failed = true;
	}
	return code;
}

static int device_count(void)
{
	int count = 0;

	if (must(hipGetDeviceCount(&count), "hipGetDeviceCount") != 0)
		return 0;
	return count < MAX_DEVICES ? count : MAX_DEVICES;
}

static void report_device(int device)
{
	struct hip_properties properties;
	size_t in_properties = 0;
	size_t total_mem = 0;
	size_t free_bytes = 0;
	size_t total = 0;

	must(hipSetDevice(device), "hipSetDevice");
	memset(&properties, 0, sizeof(properties));
	must(hipGetDevicePropertiesR0600(&properties, device), "hipGetDevicePropertiesR0600");
	memcpy(&in_properties, properties.bytes + TOTAL_IN_R0600, sizeof(in_properties));
	must(hipDeviceTotalMem(&total_mem, device), "hipDeviceTotalMem");
	must(hipMemGetInfo(&free_bytes, &total), "hipMemGetInfo");
	printf("{\"device\":%d,\"totalGlobalMem\":%zu,\"totalMem\":%zu,\"free\":%zu,\"total\":%zu}", device, in_properties,
	       total_mem, free_bytes, total);
	end_line();
}

static void report_environment(void)
{
	printf("{\"env\":{");
	for (char **entry = environ; *entry; entry++) {
		const char *equals = strchr(*entry, '=');
		size_t length = equals ? (size_t)(equals - *entry) : strlen(*entry);

		if (entry != environ)
			putchar(',');
		print_string(*entry, length);
		putchar(':');
		print_string(*entry + length + (equals ? 1 : 0), equals ? strlen(equals + 1) : 0);
	}
	printf("}}");
	end_line();
}

static void report_device_files(void)
{
	DIR *directory = opendir("/dev/dri");
	struct dirent *entry;
	bool first = true;

	printf("{\"dri\":[");
	while (directory && (entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		if (!first)
			putchar(',');
		first = false;
		print_string(entry->d_name, strlen(entry->d_name));
	}
	printf("]}");
	end_line();
	if (directory)
		closedir(directory);
	printf("{\"kfd\":%s}", access("/dev/kfd", F_OK) == 0 ? "true" : "false");
	end_line();
}

static void report(void)
{
	int count = device_count();

	for (int device = 0; device < count; device++)
		report_device(device);
	report_environment();
	report_device_files();
}

static void print_step(int device, const char *step, size_t bytes, int code)
{
	printf("{\"device\":%d,\"step\":\"%s\",\"bytes\":%zu,\"code\":%d}", device, step, bytes, code);
	end_line();
}

static void *allocate_step(int device, const char *step, size_t bytes)
{
	void *address = NULL;
	int code = hipMalloc(&address, bytes);

	print_step(device, step, bytes, code);
	return code == 0 ? address : NULL;
}

static void free_step(int device, const char *step, void *address)
{
	print_step(device, step, 0, hipFree(address));
}

static size_t total_of_current_device(void)
{
	size_t total = 0;

	must(hipMemGetInfo(NULL, &total), "hipMemGetInfo");
	return total;
}

static void try_limit(int device)
{
	size_t total;
	void *all;
	void *more;

	must(hipSetDevice(device), "hipSetDevice");
	total = total_of_current_device();
	all = allocate_step(device, "allocate-total", total);
	more = allocate_step(device, "one-byte-over", 1);
	if (more)
		free_step(device, "free-one-byte", more);
	free_step(device, "free", all);
	all = allocate_step(device, "allocate-again", total);
	free_step(device, "free-again", all);
}

static void try_limits(void)
{
	int count = device_count();

	for (int device = 0; device < count; device++)
		try_limit(device);
}

static void hold(const sigset_t *stop)
{
	int count = device_count();
	int received;

	for (int device = 0; device < count; device++) {
		void *address = NULL;

		must(hipSetDevice(device), "hipSetDevice");
		must(hipMalloc(&address, total_of_current_device()), "hipMalloc");
	}
	printf("{\"ready\":%s}", failed ? "false" : "true");
	end_line();
	/* Waiting for a blocked signal works for PID 1 too, for which signals without a handler are ignored. */
	sigwait(stop, &received);
}

int main(int argc, char **argv)
{
	const char *command = argc == 2 ? argv[1] : "";
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	if (strcmp(command, "report") == 0) {
		report();
	} else if (strcmp(command, "limit") == 0) {
		try_limits();
	} else if (strcmp(command, "hold") == 0) {
		report();
		try_limits();
		hold(&stop);
		return EXIT_SUCCESS;
	} else {
		fprintf(stderr, "usage: client report|limit|hold\n");
		return 2;
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
