/*
 * thread.h: what one thread keeps. Initial-exec TLS and at most 64 bytes, so that the library can also be opened by dlopen (which has only a
 * small static TLS reserve).
 */
#ifndef CUPLUG_THREAD_H
#define CUPLUG_THREAD_H

#include "real.h"
#include "stats.h"

#include <stdbool.h>
#include <stdint.h>

struct cuplug_context;
struct cuplug_runtime;
struct cuplug_kept;
struct cuplug_magazine;

enum cuplug_handoff { CUPLUG_HANDOFF_NONE, CUPLUG_HANDOFF_ALLOC, CUPLUG_HANDOFF_FREE };

struct cuplug_thread {
    CUcontext handle;                   /* the context last seen current … */
    struct cuplug_context *context;     /* … ours for it … */
    const struct cuplug_runtime *ready; /* the cudart copy that has succeeded in this thread, NULL before; … */
    struct cuplug_kept *kept;           /* what did not fit in here, NULL before the first use */
    uint32_t context_epoch;             /* … each valid while its epoch is the process's (see context.h) */
    uint32_t ready_epoch;
    uint32_t number;             /* its name as a per-thread default stream, 0 until it needs one */
    uint32_t depth;              /* > 0: inside a plugin; CUDA calls pass */
    CUresult handoff_result;
    uint8_t handoff; /* enum cuplug_handoff: the next driver call of this kind returns handoff_result instead of trying again */
    bool hurried; /* inside a plugin's call that must not wait for the device: its cuMemFree is put off */
    bool ended;   /* its TLS destructors have begun: nothing is kept for it any more */
    bool entered; /* an allocation or free came through the driver front; cleared by whoever wants to know */
};

_Static_assert(sizeof(struct cuplug_thread) <= 64, "a small static TLS reserve is all that dlopen has");

extern __thread struct cuplug_thread cuplug_self __attribute__((tls_model("initial-exec")));

enum { CUPLUG_ORDERED_BITS = 6, CUPLUG_ORDERED = 1 << CUPLUG_ORDERED_BITS, CUPLUG_KNOWN_BITS = 6, CUPLUG_KNOWN = 1 << CUPLUG_KNOWN_BITS };

/* The rest of what a thread keeps. Never freed: when its thread ends it goes to the next that needs one. */
struct cuplug_kept {
    struct cuplug_tally tally;     /* stats.c */
    uint64_t next_number, last_number; /* of its allocations, taken from the process's in blocks (core.c) */
    struct cuplug_magazine *_Atomic magazines; /* all; blocks for its next allocations (backends/magazine.h) … */
    struct cuplug_magazine *plain, *ordered[CUPLUG_ORDERED]; /* … without a stream's order; in it, see in_order() */
    unsigned persistent;             /* frees that found another stream's there */
    struct cuplug_known {
        CUstream stream;
        uint64_t id, epoch;
    } known[CUPLUG_KNOWN];           /* streams' identities, by their handles (core.c) */
    struct cuplug_context *freed_in; /* where it freed last … */
    unsigned unasked;                /* … so many times since it told the context (context.h) */
    struct cuplug_kept *next;      /* of all, in use or not */
    bool unused;
} __attribute__((aligned(64)));

/* Makes one for the calling thread; NULL without memory, or when the thread is ending. */
struct cuplug_kept *cuplug_kept_make(void) __attribute__((noinline, cold));

/* The calling thread's. NULL: do without. */
static inline struct cuplug_kept *cuplug_kept(void) {
    return cuplug_self.kept ? cuplug_self.kept : cuplug_kept_make();
}

/* The list, for whoever asks all. It only grows at its beginning. */
struct cuplug_kept *cuplug_kept_first(void);

/* In a forked child: the lock is free, whoever held it. If CUDA was used before, the child keeps nothing, and leaves alone what its parent does: locks
 * may be held there for ever. */
void cuplug_kept_after_fork(bool used);

#endif
