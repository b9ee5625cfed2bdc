/* Everything in which memory is counted, for whoever hooks a runtime. */
#ifndef AMVGPU_BOOKS_H
#define AMVGPU_BOOKS_H

#include <stdbool.h>

/* Opens what is not open yet; false when there is no memory for it. */
bool books_open(void);

#endif
