/* The rules of what is put back, and the work of it: see environ.h. Needs no memory and no lock, because it runs between
 * vfork and exec, too. */
#include "environ.h"

#include "environ_store.h"
#include "sys.h"

/* An environment in the making; with `slots` NULL it is only measured. */
struct result {
	char **slots;
	char *text;
	size_t slot_count;
	size_t text_size;
	bool only_new; /* leave out what is kept */
	bool changed;
};

static struct environ_store started; /* what this process was started with, and what it regained */
static struct environ_store first;   /* the container's first process */

static bool lacks_something(void)
{
	return !environ_store_has(&started, RULE_LIMIT) || !environ_store_has(&started, RULE_MASK) ||
	       !environ_store_has(&started, RULE_GPUS);
}

/* Only a first process that has this very library is of this container: with hostPID or a shared process namespace it
 * is another one. */
static bool is_of_this_container(void)
{
	const struct environ_entry *mine = environ_store_find(&started, RULE_AUDIT);
	const struct environ_entry *other = environ_store_find(&first, RULE_AUDIT);

	return mine && other && environ_list_has(other->value, mine->part, mine->part_length);
}

static bool can_be_regained(enum environ_rule rule)
{
	return environ_kind(rule) == KIND_PINNED || rule == RULE_GPUS;
}

/* The tests build the library without it, to see what is lost then. */
#ifndef REGAIN
#define REGAIN 1
#endif

void environ_init(void)
{
	environ_store_read(&started, "/proc/self/environ");
	if (!REGAIN || !environ_store_has(&started, RULE_AUDIT) || !lacks_something())
		return;
	environ_store_read(&first, "/proc/1/environ");
	if (!is_of_this_container())
		return;
	for (size_t i = 0; i < first.count; i++) {
		if (can_be_regained(first.entries[i].rule) && !environ_store_has(&started, first.entries[i].rule))
			first.entries[i].regained = true;
	}
	for (size_t i = 0; i < first.count && started.count < ENVIRON_ENTRIES; i++) {
		if (first.entries[i].regained)
			started.entries[started.count++] = first.entries[i];
	}
}

bool environ_is_ours(void)
{
	return environ_store_has(&started, RULE_LIMIT) || environ_store_has(&started, RULE_MASK);
}

const char *environ_regained(const char *prefix)
{
	for (size_t i = 0; i < started.count; i++) {
		if (started.entries[i].regained && text_starts_with(started.entries[i].text, prefix))
			return started.entries[i].text + text_length(prefix);
	}
	return NULL;
}

bool environ_regain(environ_setter put)
{
	char name[ENVIRON_NAME_SIZE];
	bool any = false;

	for (size_t i = 0; i < started.count; i++) {
		const struct environ_entry *entry = &started.entries[i];

		if (!entry->regained)
			continue;
		any = true;
		if (put && environ_name(entry, name))
			put(name, entry->value, 0);
	}
	return any;
}

static void add(struct result *result, const char *entry)
{
	if (result->slots)
		result->slots[result->slot_count] = (char *)entry;
	result->slot_count++;
}

static void keep(struct result *result, const char *entry)
{
	if (!result->only_new)
		add(result, entry);
}

static void put_back(struct result *result, const char *entry)
{
	result->changed = true;
	add(result, entry);
}

static void append(struct result *result, const char *text, size_t length)
{
	if (result->slots)
		memcpy(result->text + result->text_size, text, length);
	result->text_size += length;
}

/* NAME=<ours>:<theirs> */
static void join(struct result *result, const struct environ_entry *ours, const char *theirs)
{
	size_t prefix_length = (size_t)(ours->value - ours->text);
	const char *value = theirs + prefix_length;

	result->changed = true;
	add(result, result->slots ? result->text + result->text_size : NULL);
	append(result, ours->text, prefix_length);
	append(result, ours->part, ours->part_length);
	if (*value)
		append(result, ":", 1);
	append(result, value, text_length(value) + 1);
}

static void pass(struct result *result, const char *entry)
{
	enum environ_rule rule = environ_rule_of(entry);
	const struct environ_entry *ours = environ_store_find(&started, rule);

	if (ours && environ_kind(rule) == KIND_PINNED) {
		if (environ_store_has_text(&started, entry))
			keep(result, entry);
		else
			result->changed = true;
	} else if (ours && environ_kind(rule) == KIND_JOINED &&
		   !environ_list_has_part(entry + (ours->value - ours->text), ours)) {
		join(result, ours, entry);
	} else {
		keep(result, entry);
	}
}

static bool has(char *const envp[], const struct environ_entry *ours)
{
	bool by_text = environ_kind(ours->rule) == KIND_PINNED;

	for (; *envp; envp++) {
		if (by_text ? text_equal(*envp, ours->text) : environ_rule_of(*envp) == ours->rule)
			return true;
	}
	return false;
}

/* An environment without the library was rebuilt from nothing; one with it was edited, and what is gone was taken out on
 * purpose. */
static bool was_rebuilt(char *const envp[])
{
	const struct environ_entry *ours = environ_store_find(&started, RULE_AUDIT);

	for (; ours && *envp; envp++) {
		if (environ_rule_of(*envp) == RULE_AUDIT &&
		    environ_list_has_part(*envp + (ours->value - ours->text), ours))
			return false;
	}
	return ours != NULL;
}

static void make(struct result *result, char *const envp[])
{
	for (char *const *entry = envp; *entry; entry++)
		pass(result, *entry);
	for (size_t i = 0; i < started.count; i++) {
		const struct environ_entry *ours = &started.entries[i];

		if (environ_kind(ours->rule) == KIND_IF_REBUILT && !was_rebuilt(envp))
			continue;
		if (!has(envp, ours))
			put_back(result, ours->text);
	}
	if (result->slots)
		result->slots[result->slot_count] = NULL;
	result->slot_count++;
}

struct environ_room environ_lacks(char *const envp[])
{
	struct result result = {0};

	make(&result, envp);
	return result.changed ? (struct environ_room){result.slot_count, result.text_size} : (struct environ_room){0, 0};
}

void environ_complete(char *const envp[], char **slots, char *text)
{
	struct result result = {.slots = slots, .text = text};

	make(&result, envp);
}

struct words {
	char *out;
	size_t length;
};

static void say(struct words *words, const char *text, size_t length)
{
	if (words->out)
		memcpy(words->out + words->length, text, length);
	words->length += length;
}

static void say_assignment(struct words *words, const char *entry)
{
	size_t prefix_length = 0;

	while (entry[prefix_length] != '=')
		prefix_length++;
	say(words, " ", 1);
	say(words, entry, ++prefix_length);
	say(words, "'", 1);
	for (const char *c = entry + prefix_length; *c; c++)
		say(words, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
	say(words, "'", 1);
}

size_t environ_as_shell(char *const envp[], char *out)
{
	struct result size = {.only_new = true};
	struct words words = {.out = out};

	make(&size, envp);
	if (!size.changed)
		return 0;

	char *slots[size.slot_count];
	char text[size.text_size + 1];
	struct result result = {.slots = slots, .text = text, .only_new = true};

	make(&result, envp);
	say(&words, "export", 6);
	for (char **entry = slots; *entry; entry++)
		say_assignment(&words, *entry);
	say(&words, "; ", 2);
	return words.length;
}
