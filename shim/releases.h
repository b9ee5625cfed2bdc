/* What every hook that frees does. A pointer from any allocating function may come to any freeing one. */
#ifndef AMVGPU_RELEASES_H
#define AMVGPU_RELEASES_H

#include "hook_table.h"

/* Frees with `real`, whose code is returned. */
typedef int (*release_function)(struct hip_copy *hip, void *address, void *context);
int releases_run(struct hip_copy *hip, void *address, release_function real, void *context);

#endif
