/* The entries of an environment that this library cares about, read from /proc, with what is to be done about each. */
#ifndef AMVGPU_ENVIRON_STORE_H
#define AMVGPU_ENVIRON_STORE_H

#include <stdbool.h>
#include <stddef.h>

/* The masks of eight GPUs take about 1 KiB. */
enum { ENVIRON_ENTRIES = 32, ENVIRON_TEXT_SIZE = 16384, ENVIRON_NAME_SIZE = 64 };

enum environ_rule { RULE_NONE, RULE_AUDIT, RULE_TUNABLES, RULE_MASK, RULE_LIMIT, RULE_OWN, RULE_GPUS, RULE_HIP_GPUS };

enum environ_kind {
	KIND_FREE,       /* not ours */
	KIND_JOINED,     /* a list that has to contain our part; programs may add to it */
	KIND_PINNED,     /* a program may neither remove nor change it, for nothing else holds it to its share */
	KIND_IF_ABSENT,  /* a program may narrow it */
	KIND_IF_REBUILT, /* a program may also remove it, but not lose it with everything else */
};

struct environ_entry {
	enum environ_rule rule;
	bool regained;
	const char *text;  /* name, equals sign, value */
	const char *value; /* in `text` */
	const char *part;  /* of a list: the part of the value that is ours */
	size_t part_length;
};

struct environ_store {
	size_t count;
	size_t text_used;
	struct environ_entry entries[ENVIRON_ENTRIES];
	char text[ENVIRON_TEXT_SIZE];
};

enum environ_kind environ_kind(enum environ_rule rule);
enum environ_rule environ_rule_of(const char *entry);
/* False when the name is too long to be one of ours. */
bool environ_name(const struct environ_entry *entry, char name[ENVIRON_NAME_SIZE]);

/* The first of two definitions counts, as with getenv. What cannot be read has no entries. */
void environ_store_read(struct environ_store *store, const char *path);
const struct environ_entry *environ_store_find(const struct environ_store *store, enum environ_rule rule);
bool environ_store_has(const struct environ_store *store, enum environ_rule rule);
bool environ_store_has_text(const struct environ_store *store, const char *text);

/* Is `part` one of the parts between colons? */
bool environ_list_has(const char *list, const char *part, size_t length);
/* Does the list contain what ours contributes? A tunable counts with any value. */
bool environ_list_has_part(const char *list, const struct environ_entry *ours);

#endif
