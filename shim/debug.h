/*
 * debug.h: the faults that a DEBUG=1 build plants on request, so that tests can show that they would notice. CUPLUG_DEBUG_FAULT names one:
 *     nofence          blocks are reused without any order
 *     record_in_alloc  the record is made in the allocation that waits for it
 */
#ifndef CUPLUG_DEBUG_H
#define CUPLUG_DEBUG_H

#include <stdbool.h>

#ifdef CUPLUG_DEBUG
bool cuplug_debug_fault(const char *name);
#else
static inline bool cuplug_debug_fault(const char *name) {
    (void)name;
    return false;
}
#endif

#endif
