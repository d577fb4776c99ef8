/*
 * init.h: when the shim is on. Nothing happens before the first CUDA look-up or hooked call; then options are read, the driver is
 * found, and the process is on or off for good (off: CUPLUG_DISABLE=1, or a child forked after the driver was in use). At its end
 * the driver goes down before the program does, whose destructors may still free: it is over.
 */
#ifndef CUPLUG_INIT_H
#define CUPLUG_INIT_H

#include "thread.h"

#include <stdatomic.h>
#include <stdbool.h>

enum cuplug_state { CUPLUG_UNKNOWN, CUPLUG_ON, CUPLUG_OFF, CUPLUG_OVER };

/* Release by init.c once everything it guards is set up, acquire here. */
extern _Atomic enum cuplug_state cuplug_state;

/* Reads the options if nobody has yet. */
void cuplug_init_options(void);

/* Do the program's own CUDA calls come by here? Not in a library that was opened as somebody's allocator only, without LD_PRELOAD. Set before the state. */
extern bool cuplug_hooked;

/* True if wrappers should be handed out. */
bool cuplug_init_lookup(void);

/* True if this call is ours to handle; false: pass it to the real entry point. */
static inline bool cuplug_on(void) {
    if (atomic_load_explicit(&cuplug_state, memory_order_acquire) != CUPLUG_ON && !cuplug_init_lookup())
        return false;
    return cuplug_self.depth == 0;
}

/* True once the process is going down: no driver call that the program did not make itself. */
bool cuplug_exiting(void);

/* True once the exit handlers have come to where the driver ends: no driver call. What backends hold is left as it is. */
static inline bool cuplug_over(void) {
    return atomic_load_explicit(&cuplug_state, memory_order_acquire) == CUPLUG_OVER;
}

#endif
