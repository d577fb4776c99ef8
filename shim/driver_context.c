/*
 * driver_context.c: the driver front where contexts come and go, streams die and captures begin and end. Each asks cuplug_on() before it reads the
 * driver's entry point (the first such call fills them), makes the driver's call exactly once
 * and tells the core before or after, whichever leaves no moment in which a dead block could be handed out.
 */
#include "driver_api.h"

#include "capture.h"
#include "context.h"
#include "core.h"
#include "init.h"

CUresult cuplug_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuDevicePrimaryCtxRetain(pctx, dev);
    struct cuplug_context *context = NULL;

    if (result == CUDA_SUCCESS && on)
        context = cuplug_context_appeared(*pctx, dev, CUPLUG_CONTEXT_PRIMARY);
    if (context)
        atomic_fetch_add(&context->retained, 1);
    return result;
}

static CUresult created(bool on, CUresult result, CUcontext *pctx, CUdevice dev) {
    if (result == CUDA_SUCCESS && on)
        cuplug_context_appeared(*pctx, dev, CUPLUG_CONTEXT_CREATED);
    return result;
}

/* The first form's flags and handle are the second's; the driver tells them apart by the size of a device address only. */
CUresult cuplug_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    bool on = cuplug_on();

    return created(on, cuplug_real.cuCtxCreate(pctx, flags, dev), pctx, dev);
}

CUresult cuplug_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    bool on = cuplug_on();

    return created(on, cuplug_real.cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult cuplug_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev) {
    bool on = cuplug_on();

    return created(on, cuplug_real.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev), pctx, dev);
}

CUresult cuplug_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev) {
    bool on = cuplug_on();

    return created(on, cuplug_real.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev), pctx, dev);
}

static CUresult destroy(bool on, CUresult (*real)(CUcontext), CUcontext ctx) {
    struct cuplug_context *context = on ? cuplug_context_find(ctx) : NULL;
    CUresult result;

    cuplug_context_ending(context);
    result = real(ctx);
    cuplug_context_ended(context, result == CUDA_SUCCESS);
    return result;
}

CUresult cuplug_cuCtxDestroy(CUcontext ctx) {
    bool on = cuplug_on();

    return destroy(on, cuplug_real.cuCtxDestroy, ctx);
}

CUresult cuplug_cuCtxDestroy_v2(CUcontext ctx) {
    bool on = cuplug_on();

    return destroy(on, cuplug_real.cuCtxDestroy_v2, ctx);
}

/* One more reference to the current context, for a cuCtxDetach to drop. */
CUresult cuplug_cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuCtxAttach(pctx, flags);
    struct cuplug_context *context = on && result == CUDA_SUCCESS ? cuplug_context_current() : NULL;

    if (context)
        atomic_fetch_add(&context->attached, 1);
    return result;
}

/* Drops one reference; the last, cuCtxCreate's own, ends the context. */
CUresult cuplug_cuCtxDetach(CUcontext ctx) {
    bool on = cuplug_on();
    struct cuplug_context *context = on ? cuplug_context_find(ctx) : NULL;
    bool dropped, last;
    CUresult result;

    cuplug_context_ending(context);
    result = cuplug_real.cuCtxDetach(ctx);
    dropped = result == CUDA_SUCCESS && context;
    last = dropped && atomic_load(&context->attached) == 0;
    if (dropped && !last)
        atomic_fetch_sub(&context->attached, 1);
    cuplug_context_ended(context, last);
    return result;
}

static bool primary_active(CUdevice dev) {
    unsigned int flags;
    int active = 0;

    return cuplug_real.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

/* Takes a reference off unless it is the last that we know of. */
static bool drop_one_of_many(struct cuplug_context *context) {
    int now = atomic_load(&context->retained);

    while (now > 1)
        if (atomic_compare_exchange_weak(&context->retained, &now, now - 1))
            return true;
    return false;
}

/* A primary context ends when the last reference goes. One of many is given back without waiting for our own calls in it, which may wait for the device, and
 * that for the caller. */
static CUresult release_primary(bool on, CUresult (*real)(CUdevice), CUdevice dev) {
    struct cuplug_context *context = on ? cuplug_context_primary(dev) : NULL;
    CUresult result;

    if (context && drop_one_of_many(context)) {
        result = real(dev);
        if (result != CUDA_SUCCESS)
            atomic_fetch_add(&context->retained, 1);
        else if (!primary_active(dev)) /* it was the last: others were taken or given where we could not see */
            cuplug_context_lost(context);
        return result;
    }
    cuplug_context_ending(context);
    result = real(dev);
    cuplug_context_ended(context, context && result == CUDA_SUCCESS && (!primary_active(dev) || !cuplug_context_same(context)));
    return result;
}

CUresult cuplug_cuDevicePrimaryCtxRelease(CUdevice dev) {
    bool on = cuplug_on();

    return release_primary(on, cuplug_real.cuDevicePrimaryCtxRelease, dev);
}

CUresult cuplug_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    bool on = cuplug_on();

    return release_primary(on, cuplug_real.cuDevicePrimaryCtxRelease_v2, dev);
}

static CUresult reset_primary(bool on, CUresult (*real)(CUdevice), CUdevice dev) {
    struct cuplug_context *context = on ? cuplug_context_primary(dev) : NULL;
    CUresult result;

    cuplug_context_ending(context);
    result = real(dev);
    cuplug_context_ended(context, result == CUDA_SUCCESS);
    return result;
}

CUresult cuplug_cuDevicePrimaryCtxReset(CUdevice dev) {
    bool on = cuplug_on();

    return reset_primary(on, cuplug_real.cuDevicePrimaryCtxReset, dev);
}

CUresult cuplug_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    bool on = cuplug_on();

    return reset_primary(on, cuplug_real.cuDevicePrimaryCtxReset_v2, dev);
}

CUresult cuplug_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuCtxEnablePeerAccess(peerContext, Flags);
    struct cuplug_context *here, *there;

    if (!on || (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED))
        return result;
    here = cuplug_context_current();
    there = cuplug_context_find(peerContext);
    if (here && there)
        cuplug_core_reached(there, here->device);
    return result;
}

/* Before the driver's call: after it the handle may name another stream. */
static void stream_dies(CUstream stream) {
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !cuplug_on())
        return;
    cuplug_core_stream_destroyed(stream);
}

static CUresult destroy_stream(bool on, CUresult (*real)(CUstream), CUstream stream) {
    uint64_t captures = on ? cuplug_capture_newest() : 0;
    CUresult result;

    stream_dies(stream);
    cuplug_core_stream_ends();
    result = real(stream);
    cuplug_core_stream_ends();
    if (on && result == CUDA_SUCCESS)
        cuplug_capture_forget(stream, captures);
    return result;
}

CUresult cuplug_cuStreamDestroy(CUstream hStream) {
    bool on = cuplug_on();

    return destroy_stream(on, cuplug_real.cuStreamDestroy, hStream);
}

CUresult cuplug_cuStreamDestroy_v2(CUstream hStream) {
    bool on = cuplug_on();

    return destroy_stream(on, cuplug_real.cuStreamDestroy_v2, hStream);
}

/* It may take its streams along; then their handles serve again. */
CUresult cuplug_cuGreenCtxDestroy(CUgreenCtx hCtx) {
    CUresult result;

    cuplug_on();
    cuplug_core_stream_ends();
    result = cuplug_real.cuGreenCtxDestroy(hCtx);
    cuplug_core_stream_ends();
    return result;
}

/* The begins differ in their arguments only: CALL is the driver's, STREAM what 0 means here. */
#define BEGIN(CALL, STREAM)                                                                                                                \
    bool on = cuplug_on();                                                                                                                 \
    CUresult result;                                                                                                                       \
                                                                                                                                           \
    if (on)                                                                                                                                \
        cuplug_gate_close();                                                                                                               \
    result = (CALL);                                                                                                                       \
    if (on)                                                                                                                                \
        cuplug_capture_begun(hStream ? hStream : (STREAM), result == CUDA_SUCCESS);                                                        \
    return result

CUresult cuplug_cuStreamBeginCapture(CUstream hStream) {
    BEGIN(cuplug_real.cuStreamBeginCapture(hStream), CU_STREAM_LEGACY);
}

CUresult cuplug_cuStreamBeginCapture_ptsz(CUstream hStream) {
    BEGIN(cuplug_real.cuStreamBeginCapture_ptsz(hStream), CU_STREAM_PER_THREAD);
}

CUresult cuplug_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    BEGIN(cuplug_real.cuStreamBeginCapture_v2(hStream, mode), CU_STREAM_LEGACY);
}

CUresult cuplug_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
    BEGIN(cuplug_real.cuStreamBeginCapture_v2_ptsz(hStream, mode), CU_STREAM_PER_THREAD);
}

CUresult cuplug_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                            const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode) {
    BEGIN(cuplug_real.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData, numDependencies, mode), CU_STREAM_LEGACY);
}

CUresult cuplug_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                                 const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode) {
    BEGIN(cuplug_real.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData, numDependencies, mode),
          CU_STREAM_PER_THREAD);
}
#undef BEGIN

CUresult cuplug_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuStreamEndCapture(hStream, phGraph);

    if (on && hStream)
        cuplug_capture_end(hStream);
    return result;
}

CUresult cuplug_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuStreamEndCapture_ptsz(hStream, phGraph);

    if (on)
        cuplug_capture_end(hStream ? hStream : CU_STREAM_PER_THREAD);
    return result;
}
