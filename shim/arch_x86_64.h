/* x86-64: included by arch.h only. */
#define ARCH_LEAST_PAGE 4096UL
#define ARCH_MOST_PAGE 4096UL

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
