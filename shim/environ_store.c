/* See environ_store.h. */
#include "environ_store.h"

#include "log.h"
#include "sys.h"

enum { CHUNK_SIZE = 4096 };

/* `name` ends with an equals sign, or it is the beginning of a family of names. Of a list, `mark` tells our part. */
struct known {
	const char *name;
	enum environ_rule rule;
	enum environ_kind kind;
	const char *mark;
};

static const struct known table[] = {
	{"LD_AUDIT=", RULE_AUDIT, KIND_JOINED, "libamvgpu.so"},
	{"GLIBC_TUNABLES=", RULE_TUNABLES, KIND_JOINED, "glibc.rtld.optional_static_tls="},
	{"HSA_CU_MASK=", RULE_MASK, KIND_PINNED, NULL},
	{"HIP_DEVICE_MEMORY_LIMIT=", RULE_LIMIT, KIND_PINNED, NULL},
	{"HIP_DEVICE_MEMORY_LIMIT_", RULE_LIMIT, KIND_PINNED, NULL},
	{"AMVGPU_LOG=", RULE_NONE, KIND_FREE, NULL},
	{"AMVGPU_", RULE_OWN, KIND_PINNED, NULL},
	{"ROCR_VISIBLE_DEVICES=", RULE_GPUS, KIND_IF_ABSENT, NULL},
	{"HIP_VISIBLE_DEVICES=", RULE_HIP_GPUS, KIND_IF_REBUILT, NULL},
};

static const struct known *known_of(const char *entry)
{
	/* Nearly every entry of an environment ends here. */
	if (*entry != 'A' && *entry != 'G' && *entry != 'H' && *entry != 'L' && *entry != 'R')
		return NULL;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (text_starts_with(entry, table[i].name))
			return &table[i];
	}
	return NULL;
}

enum environ_rule environ_rule_of(const char *entry)
{
	const struct known *known = known_of(entry);

	return known ? known->rule : RULE_NONE;
}

enum environ_kind environ_kind(enum environ_rule rule)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].rule == rule)
			return table[i].kind;
	}
	return KIND_FREE;
}

bool environ_name(const struct environ_entry *entry, char name[ENVIRON_NAME_SIZE])
{
	size_t length = (size_t)(entry->value - entry->text) - 1;

	if (length >= ENVIRON_NAME_SIZE)
		return false;
	memcpy(name, entry->text, length);
	name[length] = '\0';
	return true;
}

static size_t part_length(const char *part)
{
	size_t length = 0;

	while (part[length] && part[length] != ':')
		length++;
	return length;
}

static const char *next_part(const char *part)
{
	part += part_length(part);
	return *part ? part + 1 : NULL;
}

static bool contains(const char *text, size_t length, const char *mark)
{
	size_t mark_length = text_length(mark);

	for (size_t i = 0; i + mark_length <= length; i++) {
		if (text_starts_with(text + i, mark))
			return true;
	}
	return false;
}

bool environ_list_has(const char *list, const char *part, size_t length)
{
	for (; list; list = next_part(list)) {
		size_t i = 0;

		while (i < length && list[i] == part[i])
			i++;
		if (i == length && part_length(list) == length)
			return true;
	}
	return false;
}

bool environ_list_has_part(const char *list, const struct environ_entry *ours)
{
	const struct known *known = known_of(ours->text);

	if (known->rule == RULE_TUNABLES && contains(list, text_length(list), known->mark))
		return true;
	return environ_list_has(list, ours->part, ours->part_length);
}

/* False when nothing in the list is ours. A library under another name is: the whole list then. */
static bool find_part(struct environ_entry *entry, const char *mark)
{
	for (const char *part = entry->value; part; part = next_part(part)) {
		if (contains(part, part_length(part), mark)) {
			entry->part = part;
			entry->part_length = part_length(part);
			return true;
		}
	}
	entry->part = entry->value;
	entry->part_length = text_length(entry->value);
	return entry->rule == RULE_AUDIT && *entry->value;
}

static bool is_named(const struct environ_store *store, const char *text, size_t prefix_length)
{
	for (size_t i = 0; i < store->count; i++) {
		const char *other = store->entries[i].text;
		size_t same = 0;

		while (same < prefix_length && other[same] == text[same])
			same++;
		if (same == prefix_length)
			return true;
	}
	return false;
}

/* The entry that was collected behind the stored ones: it becomes one of them, or is forgotten. */
static void take(struct environ_store *store, size_t length)
{
	const char *text = store->text + store->text_used;
	const struct known *known = known_of(text);
	size_t prefix_length = 0;

	while (text[prefix_length] && text[prefix_length] != '=')
		prefix_length++;
	if (!known || known->kind == KIND_FREE || text[prefix_length++] != '=' ||
	    store->count == ENVIRON_ENTRIES || is_named(store, text, prefix_length))
		return;
	store->entries[store->count] =
		(struct environ_entry){.rule = known->rule, .text = text, .value = text + prefix_length};
	if (known->mark && !find_part(&store->entries[store->count], known->mark))
		return;
	store->count++;
	store->text_used += length + 1;
}

static void end_entry(struct environ_store *store, size_t length)
{
	size_t room = ENVIRON_TEXT_SIZE - store->text_used;
	char *text = store->text + store->text_used;

	if (!room)
		return;
	text[length < room ? length : room - 1] = '\0';
	if (length < room)
		take(store, length);
	else if (environ_rule_of(text) != RULE_NONE)
		LOG_WARN_ONCE(LOG_TEXT("an environment value is too long to be handed down to other programs"));
}

void environ_store_read(struct environ_store *store, const char *path)
{
	char chunk[CHUNK_SIZE];
	size_t length = 0;
	long size = 0;
	long fd = sys_open_for_reading(path);

	if (fd < 0)
		return;
	while (store->text_used < ENVIRON_TEXT_SIZE && (size = sys_read((int)fd, chunk, sizeof(chunk))) > 0) {
		for (long i = 0; i < size; i++) {
			if (chunk[i] == '\0') {
				end_entry(store, length);
				length = 0;
			} else {
				if (store->text_used + length < ENVIRON_TEXT_SIZE)
					store->text[store->text_used + length] = chunk[i];
				length++;
			}
		}
	}
	sys_close((int)fd);
}

const struct environ_entry *environ_store_find(const struct environ_store *store, enum environ_rule rule)
{
	for (size_t i = 0; i < store->count; i++) {
		if (store->entries[i].rule == rule)
			return &store->entries[i];
	}
	return NULL;
}

bool environ_store_has(const struct environ_store *store, enum environ_rule rule)
{
	return environ_store_find(store, rule) != NULL;
}

bool environ_store_has_text(const struct environ_store *store, const char *text)
{
	for (size_t i = 0; i < store->count; i++) {
		if (text_equal(store->entries[i].text, text))
			return true;
	}
	return false;
}
