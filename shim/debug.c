/*
 * debug.c: see debug.h. Empty outside DEBUG=1 builds.
 */
#include "debug.h"

#ifdef CUPLUG_DEBUG
#include <stdlib.h>
#include <string.h>

bool cuplug_debug_fault(const char *name) {
    const char *fault = getenv("CUPLUG_DEBUG_FAULT");

    return fault && strcmp(fault, name) == 0;
}
#else
typedef int cuplug_debug_unused;
#endif
