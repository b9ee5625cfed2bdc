/* The C library's functions that start a program, so that no program starts without its container's variables.
 *
 * The C library's inner calls do not come by here, so every public function is replaced. Not reached: system calls made
 * by hand (static programs, Go). */
#ifndef AMVGPU_EXEC_HOOKS_H
#define AMVGPU_EXEC_HOOKS_H

#include <stdbool.h>

#include "elf.h"

/* The program's own symbols come first where the C library looks for its `environ`. */
void exec_note_program(const struct link_map *map);
bool exec_is_libc(const struct link_map *map, struct elf_image *image);
/* Redirects the functions of the program's C library, before anything is bound to it. */
void exec_attach(const struct elf_image *image);
/* Called when the C library works and the program has not begun: gives back what this very process lost. */
void exec_before_main(void);

#endif
