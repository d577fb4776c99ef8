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

static void raise_to(_Atomic uint64_t *number, uint64_t to) {
    uint64_t now = atomic_load_explicit(number, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak(number, &now, to))
        ;
}

static bool context_records(void) {
    return cuplug_real_has(cuCtxRecordEvent) && cuplug_real_has(cuCtxWaitEvent);
}

void cuplug_fence_init(struct cuplug_fence *fence, struct cuplug_context *context, CUstream stream, int backend) {
    fence->context = context;
    fence->stream = stream;
    fence->backend = backend;
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

static CUevent event_of(struct cuplug_fence *fence, uint64_t number) {
    CUevent event = fence->ring[number % CUPLUG_FENCE_RING].event;

    if (!event && cuplug_context_push(fence->context)) {
        if (cuplug_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            event = NULL;
        fence->ring[number % CUPLUG_FENCE_RING].event = event;
        cuplug_context_pop();
    }
    return event;
}

/* The driver's part of a record; sets *done if the work is already known to be done. */
static bool record_in_driver(struct cuplug_fence *fence, uint64_t number, bool *done) {
    CUresult result;
    CUevent event;

    if (!fence->stream && !context_records()) {
        if (!cuplug_context_push(fence->context))
            return false;
        result = cuplug_real.cuCtxSynchronize();
        cuplug_context_pop();
        *done = result == CUDA_SUCCESS;
        return *done;
    }
    event = event_of(fence, number);
    if (!event)
        return false;
    if (fence->stream)
        result = cuplug_real.cuEventRecord(event, fence->stream);
    else
        result = cuplug_real.cuCtxRecordEvent(fence->context->handle, event);
    if (result != CUDA_SUCCESS)
        return false;
    atomic_store_explicit(&fence->ring[number % CUPLUG_FENCE_RING].record, number, memory_order_release);
    return true;
}

bool cuplug_fence_record(struct cuplug_fence *fence) {
    bool idle = false, done = false, ok = false;
    uint64_t number;

    if (cuplug_exiting() || !atomic_compare_exchange_strong(&fence->recording, &idle, true))
        return false;
    if (cuplug_gate_enter()) {
        if (cuplug_context_live(fence->context)) {
            number = atomic_fetch_add(&fence->started, 1) + 1; /* partner of mark() */
            ok = record_in_driver(fence, number, &done);
            if (ok)
                raise_to(&fence->recorded, number);
            if (done)
                raise_to(&fence->completed, number);
        }
        cuplug_gate_leave();
    }
    atomic_store(&fence->recording, false);
    if (ok)
        cuplug_stats_count(fence->backend, fence->context->device, done ? CUPLUG_STAT_host_waits : CUPLUG_STAT_fences, 1);
    return ok;
}

/* The newest record that an event of the ring still holds. */
static CUevent newest(struct cuplug_fence *fence, uint64_t *number) {
    uint64_t recorded = atomic_load_explicit(&fence->recorded, memory_order_acquire);
    unsigned slot = recorded % CUPLUG_FENCE_RING;

    *number = atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire);
    return *number ? fence->ring[slot].event : NULL;
}

bool cuplug_fence_wait(struct cuplug_fence *fence) {
    bool ok = false;
    uint64_t number;
    CUevent event;

    if (fence->stream || !context_records() || cuplug_context_shared() || cuplug_exiting())
        return false;
    event = newest(fence, &number);
    if (!event || number <= atomic_load(&fence->waited) || number <= atomic_load(&fence->completed))
        return false;
    if (!cuplug_gate_enter())
        return false;
    if (cuplug_context_live(fence->context) && !cuplug_context_shared())
        ok = cuplug_real.cuCtxWaitEvent(fence->context->handle, event) == CUDA_SUCCESS;
    if (ok) {
        raise_to(&fence->waited, number);
        CUPLUG_COUNT(fence->backend, fence->context->device, waits, 1);
    }
    cuplug_gate_leave();
    return ok;
}

static bool query(struct cuplug_fence *fence, uint64_t number) {
    unsigned slot = number % CUPLUG_FENCE_RING;
    bool held = atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire) == number;
    CUevent event = held ? fence->ring[slot].event : NULL; /* NULL also where it was forgotten just now */

    return event && cuplug_real.cuEventQuery(event) == CUDA_SUCCESS;
}

bool cuplug_fence_poll(struct cuplug_fence *fence) {
    uint64_t recorded = atomic_load_explicit(&fence->recorded, memory_order_acquire);
    uint64_t completed = atomic_load_explicit(&fence->completed, memory_order_acquire), before = completed;
    CUstreamCaptureMode mode;

    if (completed >= recorded || cuplug_exiting() || !cuplug_context_live(fence->context))
        return false;
    mode = cuplug_capture_relax();
    if (query(fence, recorded)) {
        completed = recorded;
    } else {
        /* Not all; then how far? The oldest that the ring still holds, and on while they are done. */
        uint64_t oldest = recorded > CUPLUG_FENCE_RING ? recorded - CUPLUG_FENCE_RING + 1 : 1;

        for (uint64_t number = completed + 1 > oldest ? completed + 1 : oldest; number < recorded && query(fence, number); number++)
            completed = number;
    }
    cuplug_capture_restore(mode);
    raise_to(&fence->completed, completed);
    return completed > before;
}

bool cuplug_fence_host_wait(struct cuplug_fence *fence, uint64_t number) {
    CUstreamCaptureMode mode;
    CUresult result;
    uint64_t held;
    CUevent event = newest(fence, &held);

    if (number < held) {
        unsigned slot = number % CUPLUG_FENCE_RING;
        uint64_t there = atomic_load_explicit(&fence->ring[slot].record, memory_order_acquire);

        if (there >= number) {
            event = fence->ring[slot].event;
            held = there;
        }
    }
    if (!event || held <= atomic_load(&fence->completed) || cuplug_exiting() || !cuplug_context_live(fence->context))
        return false;
    mode = cuplug_capture_relax();
    result = cuplug_real.cuEventSynchronize(event);
    cuplug_capture_restore(mode);
    if (result != CUDA_SUCCESS)
        return false;
    raise_to(&fence->completed, held);
    CUPLUG_COUNT(fence->backend, fence->context->device, host_waits, 1);
    return true;
}

void cuplug_fence_forget(struct cuplug_fence *fence) {
    for (int i = 0; i < CUPLUG_FENCE_RING; i++) {
        atomic_store_explicit(&fence->ring[i].record, 0, memory_order_relaxed);
        fence->ring[i].event = NULL;
    }
}
