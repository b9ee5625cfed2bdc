/* What depends on the processor, one file for each: raw system calls, the thread pointer, the page size, the spin hint.
 * A port to another processor adds its file here and its flags to the Makefile, and touches nothing else. */
#ifndef AMVGPU_ARCH_H
#define AMVGPU_ARCH_H

#include <stdint.h>

#if defined(__x86_64__)
#include "arch_x86_64.h"
#elif defined(__aarch64__)
#include "arch_aarch64.h"
#else
#error "libamvgpu.so: there is no arch_<processor>.h for this processor yet"
#endif

#endif
