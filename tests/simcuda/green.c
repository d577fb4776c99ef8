/*
 * green.c — green contexts: parts of a primary context with streams of their own. Their work belongs to the primary
 * context, whose fence covers it; a fence on the green context itself covers its own streams only.
 */
#include "sim.h"

#include <string.h>

CUresult sim_cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type) {
    if (!out || type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    memset(out, 0, sizeof(*out));
    out->type = type;
    out->sm.smCount = 16;
    return CUDA_SUCCESS;
}

CUresult sim_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups, const CUdevResource *input,
                                         CUdevResource *remaining, unsigned flags, unsigned minimum) {
    (void)flags;
    if (!groups || !input || minimum == 0 || input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned size = (minimum + 7) / 8 * 8, fit = input->sm.smCount / size;
    if (result && *groups < fit)
        fit = *groups;
    *groups = fit;
    for (unsigned i = 0; result && i < fit; i++) {
        result[i] = *input;
        result[i].sm.smCount = size;
    }
    if (remaining) {
        *remaining = *input;
        remaining->sm.smCount -= fit * size;
    }
    return fit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

/* The sizes of the parts change nothing here: a description only has to be one. */
CUresult sim_cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned count) {
    static int description;
    if (!out || !resources || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdevResourceDesc)&description;
    return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags) {
    if (!out || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext primary;
    CUresult r = sim_cuDevicePrimaryCtxRetain(&primary, device);
    if (r != CUDA_SUCCESS)
        return r;
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_new();
    ctx->green = true;
    ctx->parent = sim_ctx_check(primary);
    ctx->device = device;
    ctx->api_version = 3020;
    ctx->id = ((unsigned long long)1 << 32) + ++sim.next_id; /* apart from the primary contexts' 1, 2, 3 … */
    *out = (CUgreenCtx)ctx;
    return sim_unlock_return(CUDA_SUCCESS);
}

static struct sim_ctx *check(CUgreenCtx handle) {
    struct sim_ctx *ctx = sim_ctx_check((CUcontext)handle);
    return ctx && ctx->green && ctx->live ? ctx : NULL;
}

CUresult sim_cuGreenCtxDestroy(CUgreenCtx handle) {
    sim_lock();
    struct sim_ctx *ctx = check(handle);
    if (!ctx)
        return sim_unlock_return(CUDA_ERROR_INVALID_HANDLE);
    int device = ctx->device;
    sim_ctx_close_handles(ctx);
    sim_ctx_drop(ctx);
    sim_unlock();
    sim_cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx handle) {
    sim_lock();
    struct sim_ctx *ctx = check(handle);
    if (!ctx || !out)
        return sim_unlock_return(ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    *out = (CUcontext)ctx;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id) {
    sim_lock();
    struct sim_ctx *ctx = check(handle);
    if (!ctx || !id)
        return sim_unlock_return(ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    *id = ctx->id;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned flags, int priority) {
    if (!out || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx = check(handle);
    if (!ctx)
        return sim_unlock_return(CUDA_ERROR_INVALID_HANDLE);
    struct sim_stream *stream = sim_stream_new();
    stream->ctx = ctx;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    *out = (CUstream)stream;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    return sim_cuCtxRecordEvent((CUcontext)handle, event);
}
CUresult sim_cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    return sim_cuCtxWaitEvent((CUcontext)handle, event);
}

CUresult sim_cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        *out = stream->ctx->green ? (CUgreenCtx)stream->ctx : NULL;
    return sim_unlock_return(r);
}

CUresult sim_cuStreamGetCtx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green) {
    if (!ctx || !green)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS) {
        *ctx = stream->ctx->green ? NULL : (CUcontext)stream->ctx;
        *green = stream->ctx->green ? (CUgreenCtx)stream->ctx : NULL;
    }
    return sim_unlock_return(r);
}
