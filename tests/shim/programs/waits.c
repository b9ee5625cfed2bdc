/* Has signals of writing coming, blocked, while the library writes a warning; tells whether they still are afterwards. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "hip_api.h"

static int has_coming(void)
{
	sigset_t coming;

	sigpending(&coming);
	return sigismember(&coming, SIGPIPE) && sigismember(&coming, SIGXFSZ);
}

int main(void)
{
	sigset_t ours;
	sigset_t blocked;
	void *address = NULL;
	int before;

	sigemptyset(&ours);
	sigaddset(&ours, SIGPIPE);
	sigaddset(&ours, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &ours, NULL);
	raise(SIGPIPE);
	raise(SIGXFSZ);
	before = has_coming();
	hipMalloc(&address, 4096);
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	printf("{\"before\":%s,\"after\":%s,\"blocked\":[", before ? "true" : "false", has_coming() ? "true" : "false");
	for (int number = 1, first = 1; number < NSIG; number++) {
		if (sigismember(&blocked, number) == 1) {
			printf("%s%d", first ? "" : ",", number);
			first = 0;
		}
	}
	printf("]}\n");
	return EXIT_SUCCESS;
}
