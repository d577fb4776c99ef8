/*
 * capture.c: see capture.h. Owns the two counters of the gate and the list of capturing streams (guarded by list_lock).
 */
#include "capture.h"

#include "init.h"

#include "lock.h"
#include "pages.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct capture {
    struct capture *next;
    CUstream stream;
    CUcontext context;
    pthread_t thread; /* tells per-thread default streams apart */
    uint64_t number;
};

/* Both seq_cst: inside is raised before capturing is read, capturing is raised before inside is read, so one of the two sees the other. */
static _Atomic int inside;
static _Atomic int capturing;

static struct cuplug_lock list_lock;
static struct capture *captures;
static _Atomic uint64_t newest; /* number of the capture that was listed last */
static struct cuplug_slab slab = {.object_size = sizeof(struct capture)};

bool cuplug_gate_enter(void) {
    if (atomic_load(&capturing)) /* so that newcomers cannot keep a begin waiting */
        return false;
    atomic_fetch_add(&inside, 1);
    if (atomic_load(&capturing) == 0)
        return true;
    atomic_fetch_sub(&inside, 1);
    return false;
}

void cuplug_gate_leave(void) {
    atomic_fetch_sub(&inside, 1);
}

void cuplug_gate_close(void) {
    atomic_fetch_add(&capturing, 1);
    while (atomic_load(&inside) > 0)
        sched_yield();
}

void cuplug_gate_open(void) {
    atomic_fetch_sub(&capturing, 1);
}

bool cuplug_capturing(void) {
    return atomic_load(&capturing) > 0;
}

bool cuplug_capturing_stream(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if ((cuplug_hooked && !cuplug_capturing()) || stream == CU_STREAM_LEGACY)
        return false;
    return cuplug_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void cuplug_capture_begun(CUstream stream, bool ok) {
    CUcontext context = NULL;
    struct capture *capture;

    if (!ok) {
        cuplug_gate_open();
        return;
    }
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || cuplug_real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
        cuplug_real.cuCtxGetCurrent(&context);
    cuplug_lock(&list_lock);
    capture = cuplug_slab_take(&slab);
    if (capture) { /* without memory for it the count stays up: no fences any more, but nothing spoiled */
        *capture = (struct capture){captures, stream, context, pthread_self(), atomic_fetch_add(&newest, 1) + 1};
        captures = capture;
    }
    cuplug_unlock(&list_lock);
}

uint64_t cuplug_capture_newest(void) {
    return atomic_load(&newest);
}

/* Takes the captures up to number `last` that match out of the list. A NULL stream or context matches any. */
static void forget(CUstream stream, CUcontext context, uint64_t last) {
    cuplug_lock(&list_lock);
    for (struct capture **link = &captures; *link;) {
        struct capture *capture = *link;
        bool same_thread = stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self());

        if ((stream && (capture->stream != stream || !same_thread)) || (context && capture->context != context) ||
            capture->number > last) {
            link = &capture->next;
            continue;
        }
        *link = capture->next;
        cuplug_slab_give(&slab, capture);
        cuplug_gate_open();
    }
    cuplug_unlock(&list_lock);
}

void cuplug_capture_end(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    /* An end from the wrong thread or stream leaves the capture as it is. */
    if (cuplug_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        return;
    forget(stream, NULL, UINT64_MAX);
}

void cuplug_capture_forget(CUstream stream, uint64_t last) {
    if (cuplug_capturing() && stream)
        forget(stream, NULL, last);
}

void cuplug_capture_forget_context(CUcontext context, uint64_t last) {
    if (cuplug_capturing() && context)
        forget(NULL, context, last);
}

CUstreamCaptureMode cuplug_capture_relax(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    cuplug_real.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void cuplug_capture_restore(CUstreamCaptureMode mode) {
    cuplug_real.cuThreadExchangeStreamCaptureMode(&mode);
}

void cuplug_capture_after_fork(void) {
    list_lock = (struct cuplug_lock){0};
}
