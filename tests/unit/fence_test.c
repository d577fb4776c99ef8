/*
 * fence_test.c: the fence against a model of a driver, from many threads: no mark passes before the work that was submitted ahead of it is done,
 * also while the context is reset. The model takes no lock, unlike simcuda's, so the thread sanitizer sees what only the fence itself orders.
 * A user would lose: data, by a block handed out under running work.
 */
#include "shim/fence.h"

#include "shim/capture.h"
#include "shim/context.h"
#include "quiet_shim.h"
#include "unit.h"

#include <pthread.h>
#include <sched.h>

enum { EVENTS = 4096, FREERS = 3, FREES = 10000, RESETS = 200 };

/* The driver: work is a number, an event holds the newest work submitted before it was recorded, the device does one piece after the other. */
static _Atomic uint64_t submitted, done;
static _Atomic uint64_t event_work[EVENTS];
static _Atomic unsigned events;

static CUresult event_create(CUevent *event, unsigned flags) {
    (void)flags;
    *event = (CUevent)(uintptr_t)(1 + atomic_fetch_add_explicit(&events, 1, memory_order_relaxed) % (EVENTS - 1));
    return CUDA_SUCCESS;
}

static CUresult record_event(CUcontext context, CUevent event) {
    (void)context;
    atomic_store_explicit(&event_work[(uintptr_t)event], atomic_load(&submitted), memory_order_relaxed);
    sched_yield(); /* others free between the driver's record and its return */
    return CUDA_SUCCESS;
}

static CUresult record_stream_event(CUevent event, CUstream stream) {
    (void)stream;
    return record_event(NULL, event);
}

static CUresult query_event(CUevent event) {
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    return atomic_load_explicit(&event_work[(uintptr_t)event], memory_order_relaxed) <= atomic_load_explicit(&done, memory_order_relaxed)
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_READY;
}

struct cuplug_real cuplug_real = {{{
    .cuEventCreate = event_create,
    .cuCtxRecordEvent = record_event,
    .cuEventRecord = record_stream_event,
    .cuEventQuery = query_event,
}}};

/* What the fence needs of the rest of the shim. */
bool cuplug_context_enter(struct cuplug_context *context) {
    atomic_fetch_add(&context->inside, 1);
    if (!cuplug_context_gone(context))
        return true;
    atomic_fetch_sub(&context->inside, 1);
    return false;
}
void cuplug_context_leave(struct cuplug_context *context) {
    atomic_fetch_sub(&context->inside, 1);
}
void *cuplug_real_address(enum cuplug_real_index index) {
    return ((void **)&cuplug_real)[index == CUPLUG_REAL_cuCtxWaitEvent ? CUPLUG_REAL_cuCtxRecordEvent : index];
}
bool cuplug_context_shared(void) {
    return true; /* completion only: what a device wait orders is the device's to keep */
}

static struct cuplug_context contexts[2];
static struct cuplug_fence fence;
static CUstream stream; /* which it watches; NULL: the context */
static _Atomic bool stop;
static _Atomic unsigned early, passed;

static void *device(void *unused) {
    while (!atomic_load(&stop)) {
        uint64_t now = atomic_load_explicit(&done, memory_order_relaxed);

        if (now < atomic_load(&submitted))
            atomic_store_explicit(&done, now + 1, memory_order_relaxed);
        else
            sched_yield();
    }
    return unused;
}

/* Submits work, frees, and looks until the mark passes or others have had their turn. */
static void *freer(void *unused) {
    for (int i = 0; i < FREES; i++) {
        uint64_t work = atomic_fetch_add(&submitted, 1) + 1, mark = cuplug_fence_mark(&fence);

        cuplug_fence_record(&fence, mark);
        for (int tries = 0; tries < 20; tries++) {
            cuplug_fence_poll(&fence);
            if (!cuplug_fence_passed(&fence, mark)) {
                sched_yield();
                continue;
            }
            atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed);
            if (atomic_load_explicit(&done, memory_order_relaxed) < work)
                atomic_fetch_add_explicit(&early, 1, memory_order_relaxed);
            break;
        }
    }
    return unused;
}

/* As context.c and the cache do it: nobody enters any more, who is inside is waited for, the fence forgets and serves another context. */
static void reset(int round) {
    struct cuplug_context *old = &contexts[round % 2], *next = &contexts[1 - round % 2];

    atomic_store(&old->gone, true);
    while (atomic_load(&old->inside) > 0)
        sched_yield();
    cuplug_fence_forget(&fence);
    atomic_store(&next->gone, false);
    cuplug_fence_init(&fence, next, stream, 1);
}

static void try_fence(void) {
    pthread_t threads[FREERS + 1];

    stop = false;
    early = passed = 0;
    cuplug_fence_init(&fence, &contexts[0], stream, 1);
    for (int i = 0; i < FREERS + 1; i++)
        pthread_create(&threads[i], NULL, i < FREERS ? freer : device, NULL);
    for (int round = 0; round < RESETS; round++) {
        reset(round);
        for (int i = 0; i < 50; i++)
            sched_yield();
    }
    for (int i = 0; i < FREERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(threads[FREERS], NULL);
    printf("# %u of %u marks passed\n", atomic_load(&passed), FREERS * FREES);
    CHECK(atomic_load(&early) == 0);
    CHECK(atomic_load(&passed) > 100);
}

static void nothing_passes_before_its_work_is_done(void) {
    try_fence();
}

static void the_same_where_a_stream_is_watched(void) {
    stream = (CUstream)8;
    try_fence();
}

int main(void) {
    RUN(nothing_passes_before_its_work_is_done);
    RUN(the_same_where_a_stream_is_watched);
    return 0;
}
