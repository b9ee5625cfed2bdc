/* The dynamic symbols of a loaded library, and how to point some of them at other functions.
 *
 * Changing the provider's symbol table, before anything is bound to it, reaches every way of binding there is: lazy and
 * immediate PLT slots, GOT entries (-fno-plt), tables of function pointers, dlsym, RTLD_DEEPBIND, dlmopen, and the
 * library's own look-ups. The loader's la_symbind64 reaches only PLT slots and dlsym, and before glibc 2.35 not
 * even those of objects that are bound immediately. */
#ifndef AMVGPU_ELF_H
#define AMVGPU_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_image {
	uintptr_t base;
	ElfW(Dyn) *symtab_entry; /* the entry of the dynamic section that says where the symbols are */
	ElfW(Sym) *symbols;
	size_t symbol_count;
	const char *names;
};

/* The addresses between a library's first mapping and its last one. */
struct elf_span {
	uintptr_t start;
	uintptr_t end;
};

/* Where the function `name`, which now is at `real`, shall be bound instead; NULL leaves it alone. */
typedef const void *(*elf_chooser)(void *context, const char *name, const void *real);

/* Does the name of its file, or the one inside (DT_SONAME), contain the stem? A wheel may rename both
 * (libamdhip64-1a2b3c.so). */
bool elf_is_named(const struct link_map *map, const char *stem);
/* False when the object has no usable symbol table. */
bool elf_open(const struct link_map *map, struct elf_image *image);
/* The address of a function that the library exports, or NULL. */
const void *elf_function(const struct elf_image *image, const char *name);
/* The same for a variable. */
const void *elf_object(const struct elf_image *image, const char *name);
/* Empty when the library's header cannot be read. */
struct elf_span elf_span(const struct elf_image *image);
bool elf_span_covers(const struct elf_span *span, const void *address);
/* Redirects all functions that the chooser wants redirected; false when the symbol table cannot be changed. */
bool elf_redirect(const struct elf_image *image, elf_chooser choose, void *context);

#endif
