/* Formatting without stdio: see log.h. */
#include "log.h"

#include "signals.h"
#include "sys.h"

enum { LINE_SIZE = 512, STDERR = 2, DECIMAL_DIGITS = 20 };

struct line {
	char text[LINE_SIZE];
	size_t length;
};

static enum log_level current_level;

void log_set_level(const char *text)
{
	current_level = LOG_NONE;
	if (*text >= '1' && *text <= '9')
		current_level = *text == '1' && !text[1] ? LOG_INFO : LOG_DEBUG;
}

bool log_wants(enum log_level level)
{
	return current_level >= level;
}

/* Control bytes come from an environment value or a path; they must not start a line of their own. */
static void add_text(struct line *line, const char *text)
{
	for (; *text && line->length < LINE_SIZE - 1; text++)
		line->text[line->length++] = (unsigned char)*text < ' ' ? '?' : *text;
}

static void add_number(struct line *line, uint64_t number)
{
	char digits[DECIMAL_DIGITS + 1];
	char *first = digits + DECIMAL_DIGITS;

	*first = '\0';
	do {
		*--first = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	add_text(line, first);
}

void log_parts(const struct log_part *parts, unsigned count)
{
	struct signals signals;
	struct line line;

	line.length = 0;
	add_text(&line, "amd-vgpu: ");
	for (unsigned i = 0; i < count; i++) {
		if (parts[i].text)
			add_text(&line, parts[i].text);
		else
			add_number(&line, parts[i].number);
	}
	line.text[line.length++] = '\n';
	signals_hold(&signals);
	sys_write(STDERR, line.text, line.length);
	signals_let_go(&signals);
}
