/*
 * fence.c: see fence.h. Lock-free: `recording` admits one recorder, everything else is a number that only grows.
 *
 * An event of the ring may be recorded anew while another thread asks about or waits for the older record in it. That is harmless: the newer
 * record was made later and covers the older one's work, so the answer is at worst too careful.
 */
#include "fence.h"

#include "capture.h"
#include "context.h"
#include "debug.h"
#include "stats.h"

#include <sched.h>

/* Did the driver do it? An error that lasts is kept for the program's next call. */
static bool done(struct cuplug_context *context, CUresult result) {
    return cuplug_context_answered(context, result) == CUDA_SUCCESS;
}

static void raise_to(_Atomic uint64_t *number, uint64_t to) {
    uint64_t now = atomic_load_explicit(number, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak(number, &now, to))
        ;
}

bool cuplug_fence_of_contexts(void) {
    return cuplug_real_has(cuCtxRecordEvent) && cuplug_real_has(cuCtxWaitEvent);
}

void cuplug_fence_init(struct cuplug_fence *fence, struct cuplug_context *context, CUstream stream, int backend) {
    atomic_store(&fence->context, context);
    atomic_store(&fence->thread, cuplug_self.number); /* it frees in the order of the stream, so it has one if it matters */
    atomic_store(&fence->stream, stream);
    atomic_store(&fence->backend, backend);
}

uint64_t cuplug_fence_mark(struct cuplug_fence *fence) {
    /* Full barrier, partner of the fetch_add in record(): a record numbered above the mark was asked for after everything before this free. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&fence->started);
}

bool cuplug_fence_passed(const struct cuplug_fence *fence, uint64_t mark) {
    if (cuplug_debug_fault("nofence"))
        return true;
    if (mark < atomic_load_explicit(&fence->completed, memory_order_acquire))
        return true;
    return mark < atomic_load_explicit(&fence->waited, memory_order_acquire) && !cuplug_context_shared();
}

bool cuplug_fence_foreign(struct cuplug_fence *fence) {
    return atomic_load(&fence->stream) == CU_STREAM_PER_THREAD && atomic_load(&fence->thread) != cuplug_self.number;
}

/* The host has waited for all work up to record `number`, which needs no event then. */
static void host_waited(struct cuplug_fence *fence, const struct cuplug_context *context, uint64_t number) {
    raise_to(&fence->completed, number);
    raise_to(&fence->recorded, number);
    CUPLUG_COUNT(fence->backend, context->device, host_waits, 1);
}

/* A stream's event whose record is known to be done, taken from its place, the one before `number`'s being looked at first; NULL if
 * there is none. So a stream has as many events as records under way at a time. Not a context's: another thread may be about to make
 * the device wait for just that record, and must not come upon a newer one. `recording` is ours. */
static CUevent spare(struct cuplug_fence *fence, uint64_t number) {
    uint64_t completed = atomic_load_explicit(&fence->completed, memory_order_relaxed);

    if (!atomic_load_explicit(&fence->stream, memory_order_relaxed))
        return NULL;
    for (unsigned back = 1; back < CUPLUG_FENCE_RING; back++) {
        unsigned slot = (number - back) % CUPLUG_FENCE_RING;
        CUevent event = atomic_load_explicit(&fence->ring[slot].event, memory_order_relaxed);

        if (!event || atomic_load_explicit(&fence->ring[slot].record, memory_order_relaxed) > completed)
            continue;
        atomic_store_explicit(&fence->ring[slot].record, 0, memory_order_relaxed);
        atomic_store_explicit(&fence->ring[slot].event, NULL, memory_order_relaxed);
        return event;
    }
    return NULL;
}

/* The event that is to hold record `number`. The context has been entered. */
static CUevent event_of(struct cuplug_fence *fence, struct cuplug_context *context, uint64_t number) {
    CUevent _Atomic *slot = &fence->ring[number % CUPLUG_FENCE_RING].event;
    CUevent event = atomic_load_explicit(slot, memory_order_relaxed);

    if (!event && (event = spare(fence, number)))
        atomic_store_explicit(slot, event, memory_order_relaxed);
    if (!event && cuplug_context_push(context)) {
        if (!done(context, cuplug_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
            event = NULL;
        cuplug_context_pop();
        atomic_store_explicit(slot, event, memory_order_relaxed);
    }
    return event;
}

/* Without context records a free waits for the context. It does so inside the gate, as to synchronise a context of which a stream captures spoils the
 * capture; so with such a driver the begin of a capture waits for a free under way. */
static bool synchronise(struct cuplug_context *context) {
    bool ok;

    if (!cuplug_context_push(context))
        return false;
    ok = done(context, cuplug_real.cuCtxSynchronize());
    cuplug_context_pop();
    return ok;
}

/* Context and gate have been entered, `recording` is ours. */
static bool record_now(struct cuplug_fence *fence, struct cuplug_context *context) {
    uint64_t number = atomic_fetch_add(&fence->started, 1) + 1; /* partner of mark() */
    CUstream stream = atomic_load(&fence->stream); /* after that: it is the one that a lower mark was taken of */
    CUevent event;

    if (!stream && !cuplug_fence_of_contexts()) {
        if (!synchronise(context))
            return false;
        host_waited(fence, context, number);
        return true;
    }
    if (cuplug_fence_foreign(fence))
        return false;
    event = event_of(fence, context, number);
    if (!event)
        return false;
    if (!done(context, stream ? cuplug_real.cuEventRecord(event, stream) : cuplug_real.cuCtxRecordEvent(context->handle, event)))
        return false;
    atomic_store_explicit(&fence->ring[number % CUPLUG_FENCE_RING].record, number, memory_order_release);
    raise_to(&fence->recorded, number);
    CUPLUG_COUNT(fence->backend, context->device, fences, 1);
    return true;
}

bool cuplug_fence_record(struct cuplug_fence *fence, uint64_t mark) {
    struct cuplug_context *context = atomic_load(&fence->context);
    bool idle = false, ok = false;

    if (cuplug_exiting() || !cuplug_context_enter(context))
        return false;
    while (!atomic_compare_exchange_strong(&fence->recording, &idle, true)) {
        sched_yield(); /* the record under way may be early enough in the count to cover this free, or not */
        idle = false;
    }
    if (atomic_load(&fence->recorded) > mark) {
        ok = true;
    } else if (cuplug_gate_enter()) {
        ok = record_now(fence, context);
        cuplug_gate_leave();
    }
    atomic_store(&fence->recording, false);
    cuplug_context_leave(context);
    return ok;
}

void cuplug_fence_allow(struct cuplug_fence *fence) {
    raise_to(&fence->allowed, atomic_load_explicit(&fence->recorded, memory_order_acquire));
}

/* Takes the byte out, asking for it if need be; 0 without memory. The context is current, the mode relaxed. */
static CUdeviceptr take_byte(struct cuplug_fence *fence, struct cuplug_context *context) {
    CUdeviceptr byte = atomic_exchange(&fence->byte, 0);

    if (byte || !done(context, cuplug_real.cuMemAlloc_v2(&byte, 1)))
        return byte;
    CUPLUG_COUNT(fence->backend, context->device, driver_allocs, 1);
    return byte;
}

bool cuplug_fence_synchronise(struct cuplug_fence *fence) {
    struct cuplug_context *context = atomic_load(&fence->context);
    uint64_t number = atomic_fetch_add(&fence->started, 1) + 1; /* partner of mark() */
    CUstreamCaptureMode mode;
    CUdeviceptr byte = 0;
    bool ok = false;

    if (cuplug_exiting() || !cuplug_context_enter(context))
        return false;
    mode = cuplug_capture_relax();
    if (cuplug_context_push(context)) {
        byte = take_byte(fence, context);
        ok = byte && done(context, cuplug_real.cuMemFree_v2(byte));
        if (ok)
            byte = 0;
        cuplug_context_pop();
    }
    if (byte) /* another time */
        atomic_store(&fence->byte, byte);
    cuplug_capture_restore(mode);
    cuplug_context_leave(context);
    if (!ok)
        return false;
    host_waited(fence, context, number);
    CUPLUG_COUNT(fence->backend, context->device, driver_frees, 1);
    return true;
}

/* The event that still holds just this record; NULL also where it was just forgotten, and for 0, which is no record. */
static CUevent held_by(struct cuplug_fence *fence, uint64_t number) {
    unsigned slot = number % CUPLUG_FENCE_RING;
    bool held = number && atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire) == number;

    return held ? atomic_load_explicit(&fence->ring[slot].event, memory_order_relaxed) : NULL;
}

/* The newest record that an event of the ring still holds. */
static CUevent newest(struct cuplug_fence *fence, uint64_t *number) {
    uint64_t recorded = atomic_load_explicit(&fence->recorded, memory_order_acquire);
    unsigned slot = recorded % CUPLUG_FENCE_RING;

    *number = atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire);
    return *number ? atomic_load_explicit(&fence->ring[slot].event, memory_order_relaxed) : NULL;
}

/* The context has been entered. */
static bool wait_now(struct cuplug_fence *fence, struct cuplug_context *context) {
    uint64_t number = atomic_load_explicit(&fence->allowed, memory_order_acquire);
    CUevent event = held_by(fence, number);
    bool ok = false;

    if (!event || number <= atomic_load(&fence->waited) || number <= atomic_load(&fence->completed) || !cuplug_gate_enter())
        return false;
    if (!cuplug_context_shared())
        ok = done(context, cuplug_real.cuCtxWaitEvent(context->handle, event));
    if (ok) {
        raise_to(&fence->waited, number);
        CUPLUG_COUNT(fence->backend, context->device, waits, 1);
    }
    cuplug_gate_leave();
    return ok;
}

bool cuplug_fence_wait(struct cuplug_fence *fence) {
    struct cuplug_context *context = atomic_load(&fence->context);
    bool ok;

    if (atomic_load(&fence->stream) || !cuplug_fence_of_contexts() || cuplug_context_shared() || cuplug_exiting() || !cuplug_context_enter(context))
        return false;
    ok = wait_now(fence, context);
    cuplug_context_leave(context);
    return ok;
}

static bool query(struct cuplug_fence *fence, struct cuplug_context *context, uint64_t number) {
    CUevent event = held_by(fence, number);

    if (!event)
        return false;
    atomic_store_explicit(&context->unasked, 0, memory_order_relaxed);
    return done(context, cuplug_real.cuEventQuery(event));
}

bool cuplug_fence_poll(struct cuplug_fence *fence) {
    uint64_t recorded = atomic_load_explicit(&fence->recorded, memory_order_acquire);
    uint64_t completed = atomic_load_explicit(&fence->completed, memory_order_acquire), before = completed;
    struct cuplug_context *context = atomic_load(&fence->context);
    CUstreamCaptureMode mode;

    if (completed >= recorded || cuplug_exiting() || !cuplug_context_enter(context))
        return false;
    mode = cuplug_capture_relax();
    if (query(fence, context, recorded)) {
        completed = recorded;
    } else {
        /* Not all; then how far? The oldest that the ring still holds, and on while they are done. */
        uint64_t oldest = recorded > CUPLUG_FENCE_RING ? recorded - CUPLUG_FENCE_RING + 1 : 1;

        for (uint64_t number = completed + 1 > oldest ? completed + 1 : oldest; number < recorded && query(fence, context, number); number++)
            completed = number;
    }
    cuplug_capture_restore(mode);
    cuplug_context_leave(context);
    raise_to(&fence->completed, completed);
    return completed > before;
}

/* The event of the oldest record that covers `number`, and that record's number. */
static CUevent covering(struct cuplug_fence *fence, uint64_t number, uint64_t *held) {
    CUevent event = newest(fence, held);
    unsigned slot = number % CUPLUG_FENCE_RING;
    uint64_t there = atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire);

    if (number >= *held || there < number)
        return event;
    *held = there;
    return atomic_load_explicit(&fence->ring[slot].event, memory_order_relaxed);
}

uint64_t cuplug_fence_order(struct cuplug_fence *fence, uint64_t mark, CUstream stream) {
    struct cuplug_context *context = atomic_load(&fence->context);
    uint64_t held = 0;
    CUevent event;
    bool ok = false;

    if (cuplug_exiting() || !cuplug_context_enter(context))
        return 0;
    event = covering(fence, mark + 1, &held);
    if (event && held > mark && cuplug_gate_enter()) {
        ok = done(context, cuplug_real.cuStreamWaitEvent(stream, event, 0));
        cuplug_gate_leave();
    }
    cuplug_context_leave(context);
    if (ok)
        CUPLUG_COUNT(fence->backend, context->device, waits, 1);
    return ok ? held : 0;
}

bool cuplug_fence_host_wait(struct cuplug_fence *fence, uint64_t number) {
    struct cuplug_context *context = atomic_load(&fence->context);
    CUstreamCaptureMode mode;
    CUevent event;
    uint64_t held;
    bool ok;

    if (cuplug_exiting() || !cuplug_context_enter(context))
        return false;
    event = covering(fence, number, &held);
    if (!event || held <= atomic_load(&fence->completed)) {
        cuplug_context_leave(context);
        return false;
    }
    mode = cuplug_capture_relax();
    ok = done(context, cuplug_real.cuEventSynchronize(event));
    cuplug_capture_restore(mode);
    cuplug_context_leave(context);
    if (!ok)
        return false;
    raise_to(&fence->completed, held);
    CUPLUG_COUNT(fence->backend, context->device, host_waits, 1);
    return true;
}

void cuplug_fence_forget(struct cuplug_fence *fence) {
    atomic_store(&fence->byte, 0);
    for (int i = 0; i < CUPLUG_FENCE_RING; i++) {
        atomic_store_explicit(&fence->ring[i].record, 0, memory_order_relaxed);
        atomic_store_explicit(&fence->ring[i].event, NULL, memory_order_relaxed);
    }
}
