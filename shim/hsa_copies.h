/* The loaded copies of libhsa-runtime64 and libhsakmt, and the entry points that lead from each to the hooks.
 *
 * HIP allocates by HSA, and HSA by its thunk. What HIP is asked for its own hooks count, and what it takes for itself is not
 * the program's. So an entry point goes straight to the real function when the caller is one of these libraries, or when
 * the thread is inside a hook: the return address finds what HIP does of its own accord in its own threads, the mark of
 * nest.h what reaches HSA by a detour, through a tail call or a profiler. */
#ifndef AMVGPU_HSA_COPIES_H
#define AMVGPU_HSA_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "elf.h"
#include "hsa_table.h"

bool hsa_copies_is_one(const struct link_map *map, struct elf_image *image);
/* Redirects the object's hooked functions. NULL when there is no room for one more copy: then nothing of it is counted. */
struct hsa_copy *hsa_copies_add(const struct elf_image *image);
void hsa_copies_remove(struct hsa_copy *copy);

/* The copy behind an audit cookie, or NULL. */
struct hsa_copy *hsa_copies_find(uintptr_t cookie);
/* What the function `name` of the copy, found at `address`, shall be bound to. */
const void *hsa_copies_bind(struct hsa_copy *copy, const char *name, const void *address);

#endif
