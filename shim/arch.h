/* Everything that depends on the processor: raw system calls, the thread pointer, the page size, the spin hint.
 * A port to another processor adds one branch here and touches no other file. */
#ifndef AMVGPU_ARCH_H
#define AMVGPU_ARCH_H

#include <stdint.h>

#if defined(__x86_64__)

#define ARCH_PAGE_SIZE 4096UL

static inline long arch_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* The address of the thread's control block: unique among the living threads, and readable without any TLS of our own
 * (a TLS segment in an audit library would use up the static TLS that the program needs). */
static inline uintptr_t arch_thread_pointer(void)
{
	uintptr_t pointer;

	__asm__("mov %%fs:0, %0" : "=r"(pointer));
	return pointer;
}

static inline void arch_spin_hint(void)
{
	__asm__ volatile("pause");
}

#else
#error "libamvgpu.so: this processor has no branch in arch.h yet"
#endif

#endif
