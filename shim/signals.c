/* See signals.h. */
#include "signals.h"

#include <asm/signal.h>
#include <asm/unistd.h>

#include "arch.h"

#define BIT(number) ((uint64_t)1 << ((number) - 1))
#define OF_WRITING (BIT(SIGPIPE) | BIT(SIGXFSZ))

static void set_blocked(int how, const uint64_t *signals, uint64_t *before)
{
	arch_syscall6(__NR_rt_sigprocmask, how, (long)signals, (long)before, sizeof(*signals), 0, 0);
}

void signals_hold(struct signals *before)
{
	const uint64_t ours = OF_WRITING;

	before->pending = 0;
	arch_syscall6(__NR_rt_sigpending, (long)&before->pending, sizeof(before->pending), 0, 0, 0, 0);
	set_blocked(SIG_BLOCK, &ours, &before->blocked);
}

/* What was coming already is the program's. */
void signals_let_go(const struct signals *before)
{
	const uint64_t ours = OF_WRITING & ~before->pending;
	const long at_once[2] = {0, 0};

	while (arch_syscall6(__NR_rt_sigtimedwait, (long)&ours, 0, (long)at_once, sizeof(ours), 0, 0) > 0)
		;
	set_blocked(SIG_SETMASK, &before->blocked, 0);
}
