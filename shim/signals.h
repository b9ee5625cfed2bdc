/* Signals that the kernel sends to a thread for what it has just written: SIGPIPE when nobody reads any more, SIGXFSZ when a
 * file may not be as large. By default they end the program, which has written nothing itself. */
#ifndef AMVGPU_SIGNALS_H
#define AMVGPU_SIGNALS_H

#include <stdint.h>

struct signals {
	uint64_t blocked; /* what the thread had blocked before */
	uint64_t pending; /* what it had coming then */
};

/* What is written between these two fails with an error instead, and no signal of it is left behind. */
void signals_hold(struct signals *before);
void signals_let_go(const struct signals *before);

#endif
