/* Is this thread already inside a hooked HIP function?
 *
 * HIP calls its own public functions (5.x: hipMallocPitch, hipMemGetInfo, properties; 6.x and 7.x: hipGetDevice, hipMemGetInfo
 * and more), and those calls may reach the hooks again. Only the outermost one counts. The return address cannot tell,
 * because HIP's entry points are tail calls; a thread-local variable would cost the program static TLS.
 *
 * A thread can leave a hook without nest_leave: it is cancelled in HIP, or a signal handler jumps out of it. The mark stays
 * behind, for this thread or for a new one at the same place. So it holds where the hook's frame was, and counts only as
 * long as that frame is there. */
#ifndef AMVGPU_NEST_H
#define AMVGPU_NEST_H

#include <stdbool.h>

/* False when there is no memory for the marks. */
bool nest_init(void);

/* True when this is the outermost hook of the thread; then, and only then, nest_leave has to follow. The frame is that of a
 * function which does not return before. */
bool nest_enter_from(const void *frame);
#define nest_enter() nest_enter_from(__builtin_frame_address(0))
void nest_leave(void);

#endif
