/*
 * context.c — contexts, each thread's stack of them, and the primary context of a device.
 *
 * The primary context's handle is made once and keeps its value; reset or the last release ends what it held, and the
 * next retain starts it again under a new id (cuCtxGetId). A context that was destroyed elsewhere stays on the stacks
 * of other threads and answers CUDA_ERROR_CONTEXT_IS_DESTROYED there.
 */
#include "graph.h"

#include <stdlib.h>

struct sim_ctx *sim_ctx_root(struct sim_ctx *ctx) {
    return ctx->green ? ctx->parent : ctx;
}

CUresult sim_ctx_usable(struct sim_ctx *ctx) {
    if (!ctx->live)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return sim_ctx_root(ctx)->sticky;
}

void sim_ctx_look(struct sim_ctx *ctx) {
    if (ctx->unseen && !ctx->sticky)
        ctx->sticky = ctx->unseen;
}

CUresult sim_current(struct sim_ctx **out) {
    struct sim_thread *self = sim_self();
    if (self->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_ctx *ctx = self->stack[self->depth - 1].ctx;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->primary && ctx->id != self->stack[self->depth - 1].id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = ctx;
    return sim_ctx_usable(ctx);
}

CUresult sim_ctx_resolve(CUcontext handle, struct sim_ctx **ctx) {
    if (!handle)
        return sim_current(ctx);
    *ctx = sim_ctx_check(handle);
    return *ctx ? sim_ctx_usable(*ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

static void start(struct sim_ctx *ctx, int device, unsigned flags) {
    ctx->live = true;
    ctx->device = device;
    ctx->flags = flags;
    ctx->api_version = 3020;
    ctx->sticky = ctx->unseen = CUDA_SUCCESS;
    static unsigned long long ids;
    ctx->id = ++ids;
}

static void end(struct sim_ctx *ctx) {
    ctx->freeing++;
    sim_ctx_drain(ctx);
    sim_ctx_close_handles(ctx);
    sim_ctx_end_memory(ctx);
    for (size_t i = 0; i < ctx->barriers; i++)
        sim_op_unref(ctx->barrier[i]);
    free(ctx->barrier);
    ctx->barrier = NULL;
    ctx->barriers = ctx->barrier_room = 0;
    ctx->legacy = NULL;
    ctx->peers = 0;
    ctx->live = false;
    ctx->freeing--;
    pthread_cond_broadcast(&sim.done);
    if (!ctx->primary)
        sim_ctx_drop(ctx);
}

static bool valid(CUdevice device) {
    return device >= 0 && device < sim.devices;
}

/* --- the calling thread's stack --- */

static CUresult push(struct sim_ctx *ctx) {
    struct sim_thread *self = sim_self();
    if (self->depth == (int)(sizeof(self->stack) / sizeof(self->stack[0])))
        return CUDA_ERROR_INVALID_CONTEXT;
    self->stack[self->depth].ctx = ctx;
    self->stack[self->depth++].id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent_v2(CUcontext handle) {
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_check(handle);
    return sim_unlock_return(ctx ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *out) {
    struct sim_thread *self = sim_self();
    if (self->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_ctx *ctx = self->stack[--self->depth].ctx;
    if (out)
        *out = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent(CUcontext handle) {
    return sim_cuCtxPushCurrent_v2(handle);
}
CUresult sim_cuCtxPopCurrent(CUcontext *out) {
    return sim_cuCtxPopCurrent_v2(out);
}

CUresult sim_cuCtxSetCurrent(CUcontext handle) {
    struct sim_thread *self = sim_self();
    sim_lock();
    struct sim_ctx *ctx = handle ? sim_ctx_check(handle) : NULL;
    if (handle && !ctx)
        return sim_unlock_return(CUDA_ERROR_INVALID_CONTEXT);
    if (self->depth > 0)
        self->depth--;
    return sim_unlock_return(ctx ? push(ctx) : CUDA_SUCCESS);
}

CUresult sim_cuCtxGetCurrent(CUcontext *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_thread *self = sim_self();
    *out = self->depth ? (CUcontext)self->stack[self->depth - 1].ctx : NULL;
    return CUDA_SUCCESS;
}

/* --- questions about one context --- */

CUresult sim_cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx = NULL;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_ERROR_CONTEXT_IS_DESTROYED && !handle && ctx) /* the current one may have ended */
        r = CUDA_SUCCESS;
    if (r == CUDA_SUCCESS)
        *device = ctx->device;
    return sim_unlock_return(r);
}

CUresult sim_cuCtxGetDevice(CUdevice *device) {
    return sim_cuCtxGetDevice_v2(device, NULL);
}

CUresult sim_cuCtxGetId(CUcontext handle, unsigned long long *id) {
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        *id = ctx->id;
    return sim_unlock_return(r);
}

CUresult sim_cuCtxGetFlags(unsigned *flags) {
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        *flags = ctx->flags;
    return sim_unlock_return(r);
}

CUresult sim_cuCtxGetApiVersion(CUcontext handle, unsigned *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        *version = ctx->api_version;
    return sim_unlock_return(r);
}

CUresult sim_cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSynchronize_v2(CUcontext handle) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_fence(ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_ctx *root = sim_ctx_root(ctx);
    sim_ctx_drain(root);
    sim_pool_synchronised(root->device);
    sim_ctx_look(root);
    return sim_unlock_return(root->sticky);
}

CUresult sim_cuCtxSynchronize(void) {
    return sim_cuCtxSynchronize_v2(NULL);
}

/* --- making and ending --- */

CUresult sim_cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_new();
    start(ctx, device, flags);
    *out = (CUcontext)ctx;
    return sim_unlock_return(push(ctx));
}

CUresult sim_cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device) {
    if (count < 0 || (count > 0 && !params))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_cuCtxCreate_v2(out, flags, device);
}

CUresult sim_cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice device) {
    (void)params;
    return sim_cuCtxCreate_v2(out, flags, device);
}

CUresult sim_cuCtxCreate(CUcontext *out, unsigned flags, CUdevice device) {
    return sim_cuCtxCreate_v2(out, flags, device);
}

CUresult sim_cuCtxDestroy_v2(CUcontext handle) {
    struct sim_thread *self = sim_self();
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_check(handle);
    if (!ctx || ctx->primary || ctx->green)
        return sim_unlock_return(CUDA_ERROR_INVALID_CONTEXT);
    if (self->depth && self->stack[self->depth - 1].ctx == ctx)
        self->depth--;
    end(ctx);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuCtxDestroy(CUcontext handle) {
    return sim_cuCtxDestroy_v2(handle);
}

/* A usage count from CUDA 2; cuCtxDetach at zero destroys. */
CUresult sim_cuCtxAttach(CUcontext *out, unsigned flags) {
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS) {
        ctx->references++;
        *out = (CUcontext)ctx;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuCtxDetach(CUcontext handle) {
    sim_lock();
    struct sim_ctx *ctx = sim_ctx_check(handle);
    bool last = ctx && ctx->references-- == 0;
    sim_unlock();
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    return last ? sim_cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_device *device = &sim.device[ordinal];
    if (!device->primary) {
        device->primary = sim_ctx_new();
        device->primary->primary = true;
        device->primary->live = false;
    }
    if (!device->primary->live)
        start(device->primary, ordinal, device->primary_flags);
    device->primary_refs++;
    *out = (CUcontext)device->primary;
    return sim_unlock_return(CUDA_SUCCESS);
}

static CUresult primary_end(CUdevice ordinal, bool reset) {
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_device *device = &sim.device[ordinal];
    if (!reset && device->primary_refs == 0)
        return sim_unlock_return(CUDA_ERROR_INVALID_CONTEXT);
    if (!reset)
        device->primary_refs--;
    if ((reset || device->primary_refs == 0) && device->primary && device->primary->live) {
        end(device->primary);
        sim_graphs_end_device(ordinal);
        sim_pools_end_ctx(ordinal);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return primary_end(device, false);
}
CUresult sim_cuDevicePrimaryCtxRelease(CUdevice device) {
    return primary_end(device, false);
}
CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return primary_end(device, true);
}
CUresult sim_cuDevicePrimaryCtxReset(CUdevice device) {
    return primary_end(device, true);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    *flags = sim.device[device].primary_flags;
    *active = sim.device[device].primary && sim.device[device].primary->live;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    sim.device[device].primary_flags = flags;
    if (sim.device[device].primary)
        sim.device[device].primary->flags = flags;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return sim_cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
