/*
 * thread.h: what one thread keeps. Initial-exec TLS and at most 64 bytes, so that the library can also be opened by dlopen (which has only a
 * small static TLS reserve).
 */
#ifndef CUPLUG_THREAD_H
#define CUPLUG_THREAD_H

#include "real.h"

#include <stdbool.h>
#include <stdint.h>

struct cuplug_context;
struct cuplug_runtime;

enum cuplug_handoff { CUPLUG_HANDOFF_NONE, CUPLUG_HANDOFF_ALLOC, CUPLUG_HANDOFF_FREE };

struct cuplug_thread {
    CUcontext handle;                   /* the context last seen current … */
    struct cuplug_context *context;     /* … ours for it … */
    const struct cuplug_runtime *ready; /* the cudart copy that has succeeded in this thread, NULL before; … */
    uint32_t context_epoch;             /* … each valid while its epoch is the process's (see context.h) */
    uint32_t ready_epoch;
    uint32_t number;             /* its name as a per-thread default stream, 0 until it needs one */
    uint32_t depth;              /* > 0: inside a plugin; CUDA calls pass */
    enum cuplug_handoff handoff; /* the next driver call of this kind returns handoff_result instead of trying again */
    CUresult handoff_result;
    bool hurried; /* inside a plugin's call that must not wait for the device: its cuMemFree is put off */
    bool entered; /* an allocation or free came through the driver front; cleared by whoever wants to know */
};

_Static_assert(sizeof(struct cuplug_thread) <= 64, "a small static TLS reserve is all that dlopen has");

extern __thread struct cuplug_thread cuplug_self __attribute__((tls_model("initial-exec")));

#endif
