/* See exec_start.h.
 *
 * All of this may run between vfork and exec, in memory shared with the parent: no lock, no allocation, and no system
 * call whose effect outlives the exec. The new environment is on the stack. Only an environment of many hundred
 * entries, which could be too much for the smallest stack of a thread (16 KiB with its static TLS), is mapped. */
#include "exec_start.h"

#include "environ.h"
#include "log.h"
#include "sys.h"

enum { MOST_ON_STACK = 6144, MOST_OF_ONE_WORD = 131072 };

struct exec_real exec_real;

static char *const nothing[] = {NULL};

/* clearenv leaves it NULL, and so it is before the C library has started. */
char *const *exec_environment(void)
{
	static char ***place;

	if (!place)
		place = exec_real.find_environment();
	return place && *place ? *place : nothing;
}

static int call_real(const struct exec_start *start, char *const envp[])
{
	switch (start->function) {
	case BY_EXECVE:
		return exec_real.execve(start->path, start->argv, envp);
	case BY_EXECVPE:
		return exec_real.execvpe(start->path, start->argv, envp);
	case BY_FEXECVE:
		return exec_real.fexecve(start->folder, start->argv, envp);
	case BY_EXECVEAT:
		return exec_real.execveat(start->folder, start->path, start->argv, envp, start->flags);
	default:
		return start->spawn(start->pid, start->path, start->actions, start->attributes, start->argv, envp);
	}
}

static enum exec_target target_of(const struct exec_start *start)
{
	if (start->by_name)
		return start->path ? exec_target_by_name(start->path, exec_environment()) : TARGET_ORDINARY;
	return exec_target(start->folder, start->path, start->flags);
}

static bool may_have(const struct exec_start *start)
{
	enum exec_target target = target_of(start);

	if (target == TARGET_STATIC)
		LOG_WARN_ONCE(LOG_TEXT("a static program is started without its container's variables, and what it "
				       "starts is not held to the limit: "),
			      LOG_TEXT(start->path && *start->path ? start->path : "(by descriptor)"));
	return target == TARGET_ORDINARY;
}

static int run_in(const struct exec_start *start, char *const envp[], struct environ_room room, void *memory)
{
	char **slots = memory;

	environ_complete(envp, slots, (char *)(slots + room.slots));
	LOG_AT(LOG_INFO, LOG_TEXT("completes the environment of "), LOG_TEXT(start->path ? start->path : "a program"));
	return call_real(start, slots);
}

/* Functions of their own, so that the stack is used only when it is needed. */
static __attribute__((noinline)) int run_on_stack(const struct exec_start *start, char *const envp[],
						  struct environ_room room, size_t size)
{
	char *memory[size / sizeof(char *) + 1];

	return run_in(start, envp, room, memory);
}

/* After vfork the mapping stays behind in the parent; it is rare, and better than an overflow. */
static int run_mapped(const struct exec_start *start, char *const envp[], struct environ_room room, size_t size)
{
	void *memory = sys_map(size);
	int result;

	if (!memory)
		return call_real(start, envp);
	result = run_in(start, envp, room, memory);
	sys_munmap(memory, size);
	return result;
}

int exec_run(const struct exec_start *start, char *const envp[])
{
	char *const *given = envp ? envp : nothing;
	struct environ_room room = environ_lacks(given);
	size_t size = room.slots * sizeof(char *) + room.text;

	if (!room.slots || !may_have(start))
		return call_real(start, envp);
	return size <= MOST_ON_STACK ? run_on_stack(start, given, room, size) : run_mapped(start, given, room, size);
}

static void *run_shell_with(const char *command, exec_shell run, const void *context, char *memory)
{
	size_t length = environ_as_shell(exec_environment(), memory);

	memcpy(memory + length, command, text_length(command) + 1);
	return run(memory, context);
}

static __attribute__((noinline)) void *run_shell_on_stack(const char *command, exec_shell run, const void *context,
							  size_t size)
{
	char memory[size];

	return run_shell_with(command, run, context, memory);
}

/* The shell is the C library's own child, which gets `environ` as it is. */
void *exec_run_shell(const char *command, exec_shell run, const void *context)
{
	size_t added = command ? environ_as_shell(exec_environment(), NULL) : 0;
	size_t size = added ? added + text_length(command) + 1 : 0;
	void *memory;
	void *result;

	/* Longer than any word that the kernel accepts: it shall fail as it would without us, or not at all. */
	if (!added || size > MOST_OF_ONE_WORD)
		return run(command, context);
	if (size <= MOST_ON_STACK)
		return run_shell_on_stack(command, run, context, size);
	memory = sys_map(size);
	if (!memory)
		return run(command, context);
	result = run_shell_with(command, run, context, memory);
	sys_munmap(memory, size);
	return result;
}
