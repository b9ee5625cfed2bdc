/* 64-bit ARM: included by arch.h only. There is no ROCm for it, so this is tried with the stand-in alone. */
#define ARCH_LEAST_PAGE 4096UL
#define ARCH_MOST_PAGE 65536UL

static inline long arch_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}

/* The thread's own register; its value is unique among the living threads, as on x86-64. */
static inline uintptr_t arch_thread_pointer(void)
{
	uintptr_t pointer;

	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
	return pointer;
}

static inline void arch_spin_hint(void)
{
	__asm__ volatile("yield");
}
