/* The loaded copies of libamdhip64 and the entry points that lead from each to the hooks. */
#ifndef AMVGPU_COPIES_H
#define AMVGPU_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "elf.h"
#include "hook_table.h"

/* Is this object a HIP runtime? The name of the file is only a first sign. */
bool copies_is_hip(const struct link_map *map, struct elf_image *image);

/* Redirects the object's hooked functions. The result goes back to the functions below. When there is no room for one more
 * copy, its hooked functions all refuse. */
struct hip_copy *copies_add(const struct elf_image *image);
void copies_remove(struct hip_copy *copy);

/* The copy behind an audit cookie, or NULL. */
struct hip_copy *copies_find(uintptr_t cookie);
/* Does the address lie in one of the copies? */
bool copies_cover(const void *address);
/* What the function `name` of the copy, found at `address`, shall be bound to: its entry point, or `address` itself. */
const void *copies_bind(struct hip_copy *copy, const char *name, const void *address);
/* The entry point of one of the copy's own functions, or the address itself. */
const void *copies_entry_of(const struct hip_copy *copy, const void *real);

#endif
