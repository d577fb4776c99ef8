/*
 * fence.h: knowing, without blocking the host, that the work submitted before a free is done, or is ordered before new work.
 *
 * A fence watches one context (every stream of it) or one stream. Each free notes a mark; some frees record an event. A block whose mark is
 * below a record's number may be handed out once that record is known to be done (`completed`), or once the device has been told to wait for it
 * before any later work (`waited`, contexts only). Such a wait is for what a free recorded that natively would have blocked until the same work was
 * done (`allowed`), so nothing is ordered behind work that a program may submit after it.
 */
#ifndef CUPLUG_FENCE_H
#define CUPLUG_FENCE_H

#include "real.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cuplug_context;

enum { CUPLUG_FENCE_RING = 32 };

/* All atomic: whoever took a fence out of the lock may still ask while it is forgotten and serves another context or stream. */
struct cuplug_fence {
    _Atomic uint64_t started, recorded;           /* numbers given out; the highest whose driver call succeeded */
    _Atomic uint64_t allowed;                     /* the highest that the device may be told to wait for */
    _Atomic uint64_t waited, completed;           /* the highest the device waits for; the highest known to be done */
    _Atomic bool recording;                       /* one recorder at a time */
    _Atomic int backend;                          /* whose statistics count the records and waits */
    struct cuplug_context *_Atomic context;
    CUstream _Atomic stream;                      /* NULL: the whole context */
    _Atomic uint32_t thread;                      /* whose, if a thread's default stream: others mean their own by that name */
    CUdeviceptr _Atomic byte;                     /* what cuplug_fence_synchronise could not free; 0 */
    struct {
        CUevent _Atomic event;
        _Atomic uint64_t record; /* the newest record surely in the event; 0 for none */
    } ring[CUPLUG_FENCE_RING];
};

void cuplug_fence_init(struct cuplug_fence *fence, struct cuplug_context *context, CUstream stream, int backend);

/* What a free notes on its block, after the block left the live table. */
uint64_t cuplug_fence_mark(struct cuplug_fence *fence);

/* The same for who has just taken a lock: the exchange that took it is the full barrier, where the processor makes it one. */
static inline uint64_t cuplug_fence_mark_locked(struct cuplug_fence *fence) {
#if defined(__x86_64__)
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load(&fence->started);
#else
    return cuplug_fence_mark(fence);
#endif
}

/* Is a block with this mark free of its old work, for any new work of the context? */
bool cuplug_fence_passed(const struct cuplug_fence *fence, uint64_t mark);

/* In a free: makes sure that a record above `mark` exists, another thread's or a new one of the work submitted so far. False if that could not be
 * done now (capture, an error, another thread's default stream). Where the driver has no context records this waits for the context instead. */
bool cuplug_fence_record(struct cuplug_fence *fence, uint64_t mark);

/* In a free that natively waits for the whole context, which not every free does that records: the device may be told to wait for what was recorded so far. */
void cuplug_fence_allow(struct cuplug_fence *fence);

/* Waits for all earlier work of the context, by the one call that may do so beside a capture: a cuMemFree, here of a byte. */
bool cuplug_fence_synchronise(struct cuplug_fence *fence);

/* Is its stream another thread's default stream? Only that thread can record it. */
bool cuplug_fence_foreign(struct cuplug_fence *fence);

/* Does the driver have records of whole contexts? */
bool cuplug_fence_of_contexts(void);

/* In an allocation: makes the context's later work wait on the device for the newest record that was allowed. False if it may not or there is nothing new. */
bool cuplug_fence_wait(struct cuplug_fence *fence);

/* In an allocation in the order of a stream: makes that stream's later work wait on the device for the oldest record that covers this mark. The record's
 * number; 0 if there is none, or that may not be now. */
uint64_t cuplug_fence_order(struct cuplug_fence *fence, uint64_t mark, CUstream stream);

/* Asks the driver which records are done. True if that brought something new. */
bool cuplug_fence_poll(struct cuplug_fence *fence);

/* Blocks the host until record `number` (at most the newest) is done. False if there is none outstanding or on an error. The caller sees to it that
 * nothing captures where that matters. */
bool cuplug_fence_host_wait(struct cuplug_fence *fence, uint64_t number);

/* The context is gone and took its events with it. The numbers go on, so an answer still under way cannot pass for a new one. */
void cuplug_fence_forget(struct cuplug_fence *fence);

#endif
