/* A reader that needs no memory for the environment, however large it is: see env.h. */
#include "env.h"

#include "environ.h"
#include "sys.h"

enum { CHUNK = 4096 };

static void start_entry(struct env_variable *variable)
{
	variable->candidate = variable->state == ENV_ABSENT;
	if (variable->candidate)
		variable->length = 0;
}

static void end_entry(struct env_variable *variable, size_t column)
{
	size_t prefix_length = text_length(variable->prefix);

	if (!variable->candidate || column < prefix_length)
		return;
	variable->state = variable->length < ENV_VALUE_SIZE ? ENV_PRESENT : ENV_TOO_LONG;
	variable->value[variable->length < ENV_VALUE_SIZE ? variable->length : ENV_VALUE_SIZE - 1] = '\0';
}

static void add_byte(struct env_variable *variable, size_t column, char byte)
{
	size_t prefix_length;

	if (!variable->candidate)
		return;
	prefix_length = text_length(variable->prefix);
	if (column < prefix_length) {
		variable->candidate = variable->prefix[column] == byte;
		return;
	}
	if (variable->length < ENV_VALUE_SIZE)
		variable->value[variable->length++] = byte;
}

static size_t take_chunk(struct env_variable *variables, size_t count, const char *chunk, size_t size, size_t column)
{
	bool wanted = true;

	for (size_t i = 0; i < size; i++) {
		/* The rest of an entry that none of them is. */
		if (!wanted && column && chunk[i]) {
			column++;
			continue;
		}
		wanted = false;
		for (size_t v = 0; v < count; v++) {
			if (column == 0)
				start_entry(&variables[v]);
			if (chunk[i] == '\0')
				end_entry(&variables[v], column);
			else
				add_byte(&variables[v], column, chunk[i]);
			wanted |= variables[v].candidate;
		}
		column = chunk[i] == '\0' ? 0 : column + 1;
	}
	return column;
}

/* What this process lost on its way from the container's first process. */
static void regain(struct env_variable *variable)
{
	size_t prefix_length = text_length(variable->prefix);
	const char *value = environ_regained(variable->prefix);

	if (value)
		take_chunk(variable, 1, value - prefix_length, prefix_length + text_length(value) + 1, 0);
}

void env_read(struct env_variable *variables, size_t count)
{
	char chunk[CHUNK];
	size_t column = 0;
	long size = -1;
	long fd = sys_open_for_reading("/proc/self/environ");

	if (fd >= 0) {
		while ((size = sys_read((int)fd, chunk, sizeof(chunk))) > 0)
			column = take_chunk(variables, count, chunk, (size_t)size, column);
		sys_close((int)fd);
	}
	for (size_t v = 0; v < count && size < 0; v++)
		variables[v].state = ENV_UNREADABLE;
	for (size_t v = 0; v < count; v++)
		regain(&variables[v]);
}
