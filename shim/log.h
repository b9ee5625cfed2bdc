/* Messages on stderr, each in one write so that lines of threads do not mix.
 *
 * A library that nobody asked for has to be silent: by default only warnings are written, each kind at most once per
 * process. AMVGPU_LOG=1 adds what was hooked and what was refused, AMVGPU_LOG=2 every allocation and free. */
#ifndef AMVGPU_LOG_H
#define AMVGPU_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_NONE = 0, LOG_INFO = 1, LOG_DEBUG = 2 };

/* One piece of a message: a text, or a number when `text` is NULL. */
struct log_part {
	const char *text;
	uint64_t number;
};

#define LOG_TEXT(value) ((struct log_part){(value), 0})
#define LOG_NUMBER(value) ((struct log_part){0, (uint64_t)(value)})

void log_set_level(const char *text);
bool log_wants(enum log_level level);
void log_parts(const struct log_part *parts, unsigned count);

#define LOG_WRITE(...)                                                                      \
	log_parts((const struct log_part[]){__VA_ARGS__},                                   \
		  sizeof((const struct log_part[]){__VA_ARGS__}) / sizeof(struct log_part))

#define LOG_AT(level, ...)                      \
	do {                                    \
		if (log_wants(level))           \
			LOG_WRITE(__VA_ARGS__); \
	} while (0)

/* Each place of the source that warns does so once per process (and its forked children). */
#define LOG_WARN_ONCE(...)                                                   \
	do {                                                                 \
		static bool warned;                                          \
		if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))   \
			LOG_WRITE(LOG_TEXT("warning: "), __VA_ARGS__);       \
	} while (0)

#endif
