/* The loader's side: the functions that ld.so calls in a library named by LD_AUDIT (rtld-audit(7)). Nothing else lives
 * here. la_x86_64_gnu_pltenter and pltexit are left out on purpose: their mere presence slows down every call between
 * libraries. */
#include "copies.h"
#include "environ.h"
#include "exec_hooks.h"
#include "hsa_copies.h"
#include "limit.h"
#include "log.h"

#define EXPORT __attribute__((visibility("default")))

/* ld.so has to be answered with its own version: a higher one aborts every program on older systems. */
EXPORT unsigned int la_version(unsigned int version)
{
	environ_init();
	limit_init();
	return version;
}

/* The program itself comes first, then what it needs, in the order in which it is mapped. */
static void look_at_base(struct link_map *map)
{
	struct elf_image image;

	if (!environ_is_ours())
		return;
	if (!map->l_prev)
		exec_note_program(map);
	else if (map->l_name && exec_is_libc(map, &image))
		exec_attach(&image);
}

/* Called when an object is mapped and nothing is bound to it yet. */
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
	struct elf_image image;

	if (namespace == LM_ID_BASE)
		look_at_base(map);
	if (!limit_is_set())
		return 0;
	if (limit_counts_hsa() && hsa_copies_is_one(map, &image)) {
		limit_warn_if_faulty();
		*cookie = (uintptr_t)hsa_copies_add(&image);
		LOG_AT(LOG_INFO, LOG_TEXT("counts what is taken from "), LOG_TEXT(map->l_name));
		return LA_FLG_BINDFROM | LA_FLG_BINDTO;
	}
	if (!copies_is_hip(map, &image))
		return LA_FLG_BINDFROM;
	limit_warn_if_faulty();
	*cookie = (uintptr_t)copies_add(&image);
	LOG_AT(LOG_INFO, LOG_TEXT("limits "), LOG_TEXT(map->l_name), LOG_TEXT(" to "), LOG_NUMBER(limit_bytes(0)),
	       LOG_TEXT(" bytes on each GPU"));
	return LA_FLG_BINDFROM | LA_FLG_BINDTO;
}

/* The second net, for a copy whose symbols could not be redirected. Then HIP's own references must reach HIP. What HIP
 * looks up with dlsym is not for itself but for the caller of hipGetProcAddress. With redirected symbols the address is
 * that of the hook already, and is returned as it is. */
EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
			      unsigned int *flags, const char *name)
{
	struct hip_copy *copy = copies_find(*to);
	struct hsa_copy *hsa = hsa_copies_find(*to);

	(void)index;
	if (hsa)
		return (uintptr_t)hsa_copies_bind(hsa, name, (const void *)symbol->st_value);
	if (!copy || (copies_find(*from) == copy && !(*flags & LA_SYMB_DLSYM)))
		return symbol->st_value;
	return (uintptr_t)copies_bind(copy, name, (const void *)symbol->st_value);
}

/* Called when everything is bound and the constructors of the libraries have run, before the program's own code. */
EXPORT void la_preinit(uintptr_t *cookie)
{
	(void)cookie;
	if (environ_is_ours())
		exec_before_main();
}

EXPORT unsigned int la_objclose(uintptr_t *cookie)
{
	struct hip_copy *copy = copies_find(*cookie);
	struct hsa_copy *hsa = hsa_copies_find(*cookie);

	if (copy)
		copies_remove(copy);
	if (hsa)
		hsa_copies_remove(hsa);
	return 0;
}
