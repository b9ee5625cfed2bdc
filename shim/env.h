/* The environment this process was started with.
 *
 * Read from /proc/self/environ before the program runs: the program cannot have changed it yet, and the loader gives an
 * audit library no other access to it. */
#ifndef AMVGPU_ENV_H
#define AMVGPU_ENV_H

#include <stdbool.h>
#include <stddef.h>

enum env_state { ENV_ABSENT, ENV_PRESENT, ENV_TOO_LONG, ENV_UNREADABLE };

enum { ENV_VALUE_SIZE = 256 };

struct env_variable {
	const char *prefix; /* name and equals sign */
	enum env_state state;
	char value[ENV_VALUE_SIZE]; /* cut off when too long */

	/* while reading */
	bool candidate;
	size_t length;
};

/* Fills in the variables; the first of two definitions counts, as with getenv. */
void env_read(struct env_variable *variables, size_t count);

#endif
