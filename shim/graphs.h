/* Memory that graphs allocate when they are launched. It is charged when the node is added, and credited when the graph
 * and everything that was instantiated from it are destroyed: until then a launch may need it again. */
#ifndef AMVGPU_GRAPHS_H
#define AMVGPU_GRAPHS_H

#include "booking.h"

/* Is the stream being captured? */
bool graphs_is_captured(struct hip_copy *hip, void *stream);

/* As booking_close, for a node of the graph, or of the one that the stream captures. */
int graphs_close(const struct booking *booking, int code, const void *graph_or_stream);

#endif
