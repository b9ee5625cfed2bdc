/* The variables that make a program part of its container's share, and how a program that is started gets them.
 *
 * Servers start workers whose environment was emptied or rebuilt; such a worker would run without the library, without
 * its mask and without its limit. The values are those that this process was started with; what it was started without
 * is taken from the container's first process, if that one has this library too. */
#ifndef AMVGPU_ENVIRON_H
#define AMVGPU_ENVIRON_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the values. Called once, before any other function. */
void environ_init(void);
/* Was this process started with a limit or a mask? Otherwise nothing here does anything. */
bool environ_is_ours(void);

/* The value that this process lost and its container's first process has, or NULL. `prefix` is name and equals sign. */
const char *environ_regained(const char *prefix);
/* Calls `put` with name and value of all of those; false when there are none. */
typedef int (*environ_setter)(const char *name, const char *value, int replace);
bool environ_regain(environ_setter put);

/* How much room an environment needs when what it lacks is put back; `slots` is 0 when it lacks nothing. */
struct environ_room {
	size_t slots; /* with the NULL at the end */
	size_t text;
};
struct environ_room environ_lacks(char *const envp[]);
/* Writes the environment with all that it lacks. It may share its strings with `envp`. */
void environ_complete(char *const envp[], char **slots, char *text);

/* The same as words for a shell: "export A='1' B='2'; ", without an end. Returns the length, 0 when nothing is lacking;
 * `out` may be NULL. */
size_t environ_as_shell(char *const envp[], char *out);

#endif
