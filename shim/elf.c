/* Reading and redirecting dynamic symbols: see elf.h. */
#include "elf.h"

#include <linux/mman.h>

#include "arch.h"
#include "sys.h"

/* Which ways of redirecting are compiled in; the tests build the library with fewer, to try the later ones. */
#ifndef REDIRECT_WAYS
#define REDIRECT_WAYS 3
#endif
enum { WAY_COPY = 1, WAY_PATCH = 2 };

/* More than any library is long, less than where any is mapped. */
#define MOST_OFFSET ((uintptr_t)UINT32_MAX)

/* The loader has made these addresses absolute when the dynamic section is writable, and left them alone otherwise. An
 * absolute one may lie below the library: another audit library can have redirected it before. */
static uintptr_t absolute(uintptr_t base, uintptr_t value)
{
	return value < base && value <= MOST_OFFSET ? base + value : value;
}

/* Behind the last slash. */
static bool last_part_has(const char *path, const char *stem)
{
	const char *part = path;

	for (const char *c = path; *c; c++) {
		if (*c == '/')
			part = c + 1;
	}
	for (; *part; part++) {
		if (text_starts_with(part, stem))
			return true;
	}
	return false;
}

/* The name that the library was linked with, or NULL. */
static const char *name_inside(const struct link_map *map)
{
	const char *names = NULL;
	const ElfW(Dyn) *name = NULL;

	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_STRTAB)
			names = (const char *)absolute(map->l_addr, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_SONAME)
			name = entry;
	}
	return names && name ? names + name->d_un.d_val : NULL;
}

/* By its file, or else inside: it may have been opened by a link, or from memory (/proc/self/fd). */
bool elf_is_named(const struct link_map *map, const char *stem)
{
	const char *inside;

	if (map->l_name && last_part_has(map->l_name, stem))
		return true;
	inside = name_inside(map);
	return inside && last_part_has(inside, stem);
}

static size_t count_by_gnu_hash(const uint32_t *table)
{
	uint32_t bucket_count = table[0];
	uint32_t first_hashed = table[1];
	const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chains = buckets + bucket_count;
	uint32_t last = 0;

	for (uint32_t i = 0; i < bucket_count; i++)
		last = buckets[i] > last ? buckets[i] : last;
	if (last < first_hashed)
		return first_hashed;
	while (!(chains[last - first_hashed] & 1)) /* bit 0 ends a chain */
		last++;
	return (size_t)last + 1;
}

bool elf_open(const struct link_map *map, struct elf_image *image)
{
	const uint32_t *hash = NULL;
	const uint32_t *gnu_hash = NULL;
	size_t entry_size = 0;

	*image = (struct elf_image){.base = map->l_addr};
	for (ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
		uintptr_t address = absolute(image->base, entry->d_un.d_ptr);

		if (entry->d_tag == DT_SYMTAB) {
			image->symtab_entry = entry;
			image->symbols = (ElfW(Sym) *)address;
		} else if (entry->d_tag == DT_STRTAB) {
			image->names = (const char *)address;
		} else if (entry->d_tag == DT_HASH) {
			hash = (const uint32_t *)address;
		} else if (entry->d_tag == DT_GNU_HASH) {
			gnu_hash = (const uint32_t *)address;
		} else if (entry->d_tag == DT_SYMENT) {
			entry_size = entry->d_un.d_val;
		}
	}
	if (!image->symbols || !image->names || entry_size != sizeof(ElfW(Sym)) || (!hash && !gnu_hash))
		return false;
	image->symbol_count = hash ? hash[1] : count_by_gnu_hash(gnu_hash);
	return true;
}

static bool is_exported(const ElfW(Sym) *symbol, unsigned type)
{
	unsigned binding = ELF64_ST_BIND(symbol->st_info);

	return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 && ELF64_ST_TYPE(symbol->st_info) == type &&
	       (binding == STB_GLOBAL || binding == STB_WEAK);
}

/* An exported, defined function; not one that is chosen at run time (IFUNC), whose value is its chooser. */
static bool is_function(const ElfW(Sym) *symbol)
{
	return is_exported(symbol, STT_FUNC);
}

static const void *find(const struct elf_image *image, const char *name, unsigned type)
{
	for (size_t i = 0; i < image->symbol_count; i++) {
		const ElfW(Sym) *symbol = &image->symbols[i];

		if (is_exported(symbol, type) && text_equal(image->names + symbol->st_name, name))
			return (const void *)(image->base + symbol->st_value);
	}
	return NULL;
}

const void *elf_function(const struct elf_image *image, const char *name)
{
	return find(image, name, STT_FUNC);
}

const void *elf_object(const struct elf_image *image, const char *name)
{
	return find(image, name, STT_OBJECT);
}

static void edit(const struct elf_image *image, ElfW(Sym) *symbols, elf_chooser choose, void *context)
{
	for (size_t i = 0; i < image->symbol_count; i++) {
		const void *target;

		if (!is_function(&symbols[i]))
			continue;
		target = choose(context, image->names + symbols[i].st_name,
				(const void *)(image->base + symbols[i].st_value));
		/* The loader adds the base again; the difference may wrap around, and so does its sum. */
		if (target)
			symbols[i].st_value = (uintptr_t)target - image->base;
	}
}

/* NULL when it cannot be found: a library without a base was prelinked to a fixed address, and its header could be
 * anywhere. */
static const ElfW(Ehdr) *header_of(const struct elf_image *image)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)image->base;

	if (!header || header->e_ident[0] != ELFMAG0 || header->e_ident[1] != ELFMAG1 || header->e_ident[2] != ELFMAG2 ||
	    header->e_ident[3] != ELFMAG3)
		return NULL;
	return header;
}

/* The program header of the type that covers an address. */
static const ElfW(Phdr) *segment(const struct elf_image *image, uint32_t type, uintptr_t address)
{
	const ElfW(Ehdr) *header = header_of(image);
	const ElfW(Phdr) *segments;
	uintptr_t offset = address - image->base;

	if (!header)
		return NULL;
	segments = (const ElfW(Phdr) *)(image->base + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++) {
		if (segments[i].p_type == type && offset - segments[i].p_vaddr < segments[i].p_memsz)
			return &segments[i];
	}
	return NULL;
}

struct elf_span elf_span(const struct elf_image *image)
{
	const ElfW(Ehdr) *header = header_of(image);
	struct elf_span span = {image->base, image->base};
	const ElfW(Phdr) *segments;

	if (!header)
		return span;
	segments = (const ElfW(Phdr) *)(image->base + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++) {
		uintptr_t end = image->base + segments[i].p_vaddr + segments[i].p_memsz;

		if (segments[i].p_type == PT_LOAD && end > span.end)
			span.end = end;
	}
	return span;
}

bool elf_span_covers(const struct elf_span *span, const void *address)
{
	return (uintptr_t)address >= span->start && (uintptr_t)address < span->end;
}

/* Edits a copy and lets the dynamic section point at it. The loader reads that entry again at every look-up. Nothing
 * executable is touched and no protection changed, so the strictest SELinux policy lets it pass. The copy stays for
 * ever: a look-up in another thread may still read it when the library is closed. */
static bool redirect_in_copy(const struct elf_image *image, elf_chooser choose, void *context)
{
	size_t size = image->symbol_count * sizeof(ElfW(Sym));
	const ElfW(Phdr) *dynamic = segment(image, PT_DYNAMIC, (uintptr_t)image->symtab_entry);
	ElfW(Sym) *copy;

	if (!dynamic || !(dynamic->p_flags & PF_W))
		return false;
	copy = sys_map(size);
	if (!copy)
		return false;
	/* Entry by entry, which is faster than memcpy's bytes: the C library has 3,000. */
	for (size_t i = 0; i < image->symbol_count; i++)
		copy[i] = image->symbols[i];
	edit(image, copy, choose, context);
	sys_mprotect(copy, size, PROT_READ);
	image->symtab_entry->d_un.d_ptr = (uintptr_t)copy;
	return true;
}

/* The start of the first page of the symbols, made writable; 0 when that cannot be. */
static uintptr_t open_pages(const struct elf_image *image)
{
	uintptr_t end = (uintptr_t)(image->symbols + image->symbol_count);

	/* The system refuses what is not the start of a page, so trying tells the size of its pages. */
	for (uintptr_t page = ARCH_LEAST_PAGE; page <= ARCH_MOST_PAGE; page *= 2) {
		uintptr_t start = (uintptr_t)image->symbols & -page;

		if (sys_mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) == 0)
			return start;
	}
	return 0;
}

/* Edits the symbols where they are. Nobody runs code of the library yet, so its pages may stop being executable for a
 * moment. */
static bool redirect_in_place(const struct elf_image *image, elf_chooser choose, void *context)
{
	const ElfW(Phdr) *load = segment(image, PT_LOAD, (uintptr_t)image->symbols);
	uintptr_t start = load ? open_pages(image) : 0;
	size_t size = (uintptr_t)(image->symbols + image->symbol_count) - start;
	int protection;

	if (!start)
		return false;
	edit(image, image->symbols, choose, context);
	protection = (load->p_flags & PF_R ? PROT_READ : 0) | (load->p_flags & PF_W ? PROT_WRITE : 0) |
		     (load->p_flags & PF_X ? PROT_EXEC : 0);
	sys_mprotect((void *)start, size, protection);
	return true;
}

bool elf_redirect(const struct elf_image *image, elf_chooser choose, void *context)
{
	if ((REDIRECT_WAYS & WAY_COPY) && redirect_in_copy(image, choose, context))
		return true;
	return (REDIRECT_WAYS & WAY_PATCH) && redirect_in_place(image, choose, context);
}
