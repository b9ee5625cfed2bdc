/* Is this thread already inside a hooked HIP function?
 *
 * HIP calls its own public functions (5.x: hipMallocPitch, hipMemGetInfo, properties; 6.x and 7.x: hipGetDevice, hipMemGetInfo
 * and more), and those calls may reach the hooks again. Only the outermost one counts. The return address cannot tell,
 * because HIP's entry points are tail calls; a thread-local variable would cost the program static TLS. */
#ifndef AMVGPU_NEST_H
#define AMVGPU_NEST_H

#include <stdbool.h>

/* False when there is no memory for the marks. */
bool nest_init(void);

/* True when this is the outermost hook of the thread; then, and only then, nest_leave has to follow. */
bool nest_enter(void);
void nest_leave(void);

#endif
