/*
 * context.h: our object for each CUDA context that serves memory.
 *
 * A context is served if the program made it where we could see (primary retain, cuCtxCreate); any other handle (a green context's, say) is
 * left to the driver. Objects are never freed, so a stale pointer is harmless; a new context gets a new object.
 */
#ifndef CUPLUG_CONTEXT_H
#define CUPLUG_CONTEXT_H

#include "init.h"
#include "real.h"
#include "stats.h"
#include "thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum cuplug_context_origin {
    CUPLUG_CONTEXT_UNKNOWN, /* not served */
    CUPLUG_CONTEXT_PRIMARY,
    CUPLUG_CONTEXT_CREATED
};

/* What every call reads comes first; what calls write is on another cache line, as threads would take the first from each other. */
struct cuplug_context {
    CUcontext handle;
    uint64_t id; /* cuCtxGetId where the driver has it, else a number of ours */
    CUdevice device;
    _Atomic int origin;   /* enum cuplug_context_origin */
    _Atomic bool gone;
    _Atomic int ending; /* program's calls under way that may end it: no new blocks, no driver call of ours in it */
    _Atomic int fault; /* CUresult: the lasting error that a driver call in it met; 0 for none */
    void *_Atomic cache[CUPLUG_STATS_BACKENDS]; /* what each backend keeps for it; the backend's to set */
    void *_Atomic vmm; /* what is mapped for it (backends/vmm.c) */
    struct cuplug_context *next;
    _Atomic uint64_t peers; /* devices, a bit each, that the program gave access to its memory */
    _Atomic int inside __attribute__((aligned(64))); /* driver calls of ours in it that are under way */
    _Atomic int retained; /* references to a primary context that were seen taken */
    _Atomic int attached; /* references that the program took with cuCtxAttach */
    _Atomic unsigned unasked; /* frees since the driver was asked something that would have shown such an error; about so many */
    _Atomic uint64_t captures; /* the newest capture when the last call that may end it began */
};

/* Raised by every reset, release, destruction: what threads remember of contexts is void. Release there, acquire here. */
extern _Atomic uint32_t cuplug_context_epoch;

/* More than one context exists or existed: no reuse may rest on a device wait, which orders one context only. */
bool cuplug_context_shared(void);

/* From now on none may, as if there were more than one. Returns once those blocks are done waiting. */
void cuplug_context_share(void);

/* Any context seen yet? (Then a forked child cannot use the driver.) */
bool cuplug_context_any(void);

/* The calling thread's current context; NULL if there is none. May be one that is not served. */
struct cuplug_context *cuplug_context_look_up(CUcontext handle);

static inline struct cuplug_context *cuplug_context_current(void) {
    CUcontext handle = NULL;

    if (cuplug_real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    if (cuplug_hooked && handle == cuplug_self.handle &&
        cuplug_self.context_epoch == atomic_load_explicit(&cuplug_context_epoch, memory_order_acquire))
        return cuplug_self.context;
    return cuplug_context_look_up(handle);
}

/* A context the program just made or retained. */
struct cuplug_context *cuplug_context_appeared(CUcontext handle, CUdevice device, enum cuplug_context_origin origin);

/* The context that has this handle now, if we know of it; without a driver call. */
struct cuplug_context *cuplug_context_find(CUcontext handle);

/* The device's primary context, if there is one. */
struct cuplug_context *cuplug_context_primary(CUdevice device);

/* Around a call that may end a context: it is marked, and every driver call of ours in it is over. NULL is allowed. */
void cuplug_context_ending(struct cuplug_context *context);
/* … and afterwards: did it end? If not, it serves on. NULL is allowed. */
void cuplug_context_ended(struct cuplug_context *context, bool ended);
/* A release of a primary context was seen to end it only afterwards. */
void cuplug_context_lost(struct cuplug_context *context);
/* After a release of the primary context that left it alive: is it the same one, or did another thread's retain make a new one? */
bool cuplug_context_same(const struct cuplug_context *context);

/* Around every driver call of ours that is about a context which another thread may end meanwhile. False: it has ended, make no call. While an end is
 * under way this waits to see whether it was one; so it must not be nested, as the end waits for the outer one. */
bool cuplug_context_enter(struct cuplug_context *context);
void cuplug_context_leave(struct cuplug_context *context);

/* Makes a context that has been entered current for a few calls of ours; false if that failed. The pop restores what was current. */
bool cuplug_context_push(const struct cuplug_context *context);
void cuplug_context_pop(void);

static inline bool cuplug_context_live(const struct cuplug_context *context) {
    return !atomic_load(&context->gone) && !atomic_load(&context->ending);
}

static inline bool cuplug_context_gone(const struct cuplug_context *context) {
    return atomic_load(&context->gone);
}

/* Is it there, once the calls that may be ending it are over? */
bool cuplug_context_settled(const struct cuplug_context *context);

/* What the driver says of the current context: an error if every call in it fails, because it has ended, say. (cuCtxGetDevice succeeds in one that has
 * ended, measured.) Legal in a capture. */
CUresult cuplug_context_check(void);

/* What the driver answered to a call in this context (NULL is allowed), returned as it is. After a kernel's fault every call fails with the same
 * error until the context ends; such an answer is kept, so that an allocation which needs no driver call does not hide it for good. */
CUresult cuplug_context_answered(struct cuplug_context *context, CUresult result);

void cuplug_context_look(struct cuplug_context *context);

/* So many more frees that made no driver call. Once there are about 150 since the driver was asked, it is: the driver itself says that the context has
 * faulted only to a call that comes upon it, a free, a query, a wait (measured); an allocation, or a record of the context, succeeds until then. */
void cuplug_context_count_frees(struct cuplug_context *context, unsigned frees);

/* Such a free. Threads count for themselves, 16 at a time, so that they do not meet here. */
static inline void cuplug_context_freed(struct cuplug_context *context) {
    struct cuplug_kept *kept = cuplug_kept();

    if (kept && kept->freed_in == context && kept->unasked < 15) {
        kept->unasked++;
        return;
    }
    if (kept && kept->freed_in)
        cuplug_context_count_frees(kept->freed_in, kept->unasked);
    if (kept) {
        kept->freed_in = context;
        kept->unasked = 0;
    }
    cuplug_context_count_frees(context, 1);
}

/* What the ending thread has not told yet. */
void cuplug_context_thread_ends(struct cuplug_kept *kept);

/* That error, CUDA_SUCCESS if none was met. Relaxed: it says nothing about other memory, and who misses it meets the error at the next call. */
static inline CUresult cuplug_context_fault(const struct cuplug_context *context) {
    return (CUresult)atomic_load_explicit(&context->fault, memory_order_relaxed);
}

/* Calls `visit` for every served context that is not gone. */
void cuplug_context_each(void (*visit)(struct cuplug_context *context, void *arg), void *arg);

/* In a forked child: locks are free, whoever held them. */
void cuplug_context_after_fork(void);

#endif
