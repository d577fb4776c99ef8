/*
 * event.c — events and the context fence: names for points in the device's work.
 *
 * An event holds the operation of its last record. Destroying it while that is pending is legal and changes nothing.
 * cuCtxRecordEvent names all work submitted so far; cuCtxWaitEvent puts a barrier before all later work of a context.
 */
#include "ipc.h"

#include <stdlib.h>

void sim_event_record_op(struct sim_event *event, struct sim_op *op) {
    sim_op_replace(&event->op, op);
    event->capture = 0;
}

void sim_event_destroy(struct sim_event *event) {
    sim_op_replace(&event->op, NULL);
    sim_ipc_event_unref(event->shared);
    free(event->cap_deps);
    sim_event_drop(event);
}

CUresult sim_cuEventCreate(CUevent *out, unsigned flags) {
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!out || (flags & ~known) || ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS) {
        struct sim_event *event = sim_event_new();
        event->ctx = ctx;
        event->flags = flags;
        event->shared = flags & CU_EVENT_INTERPROCESS ? sim_ipc_event_new() : NULL;
        *out = (CUevent)event;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuEventDestroy_v2(CUevent handle) {
    sim_lock();
    struct sim_event *event = sim_event_check(handle);
    CUresult r = event ? event->ctx->sticky : CUDA_ERROR_INVALID_HANDLE;
    if (event)
        sim_event_destroy(event);
    return sim_unlock_return(r);
}

CUresult sim_cuEventDestroy(CUevent handle) {
    return sim_cuEventDestroy_v2(handle);
}

CUresult sim_cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags) {
    if (flags & ~CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(stream_handle, &stream);
    struct sim_event *event = sim_event_check(handle);
    if (r == CUDA_SUCCESS && (!event || sim_ctx_root(event->ctx) != sim_ctx_root(stream->ctx)))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    if (stream->capture)
        return sim_unlock_return(sim_capture_record(stream, event, flags & CU_EVENT_RECORD_EXTERNAL));
    struct sim_op *op = NULL;
    if (event->shared) {
        struct sim_work signal = {.kind = SIM_IPC_SIGNAL,
                                  .ipc = {sim_ipc_event_ref(event->shared), sim_ipc_event_submit(event->shared)}};
        r = sim_submit(stream, &signal, &op);
    } else {
        r = sim_submit_marker(stream, &op);
    }
    if (op) {
        if (event->live)
            sim_event_record_op(event, op);
        sim_op_unref(op);
    }
    return sim_unlock_return(r);
}

CUresult sim_cuEventRecord(CUevent handle, CUstream stream) {
    return sim_cuEventRecordWithFlags(handle, stream, 0);
}

static CUresult readable(struct sim_event *event) {
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->ctx->sticky)
        return event->ctx->sticky;
    CUresult r = sim_capture_guard(event->ctx);
    if (r == CUDA_SUCCESS && event->capture)
        r = CUDA_ERROR_CAPTURED_EVENT;
    return r;
}

CUresult sim_cuEventQuery(CUevent handle) {
    sim_lock();
    struct sim_event *event = sim_event_check(handle);
    if (event)
        sim_ctx_look(sim_ctx_root(event->ctx));
    CUresult r = readable(event);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    if (event->shared)
        r = sim_ipc_event_reached(event->shared, sim_ipc_event_submitted(event->shared)) ? r : CUDA_ERROR_NOT_READY;
    else if (event->op && !event->op->done)
        r = CUDA_ERROR_NOT_READY;
    return sim_unlock_return(r);
}

CUresult sim_cuEventSynchronize(CUevent handle) {
    sim_lock();
    struct sim_event *event = sim_event_check(handle);
    CUresult r = readable(event);
    if (r == CUDA_SUCCESS && event->shared) {
        struct sim_ipc_event *shared = sim_ipc_event_ref(event->shared);
        uint64_t ticket = sim_ipc_event_submitted(shared);
        sim_unlock();
        sim_ipc_event_await(shared, ticket);
        sim_lock();
        sim_ipc_event_unref(shared);
    } else if (r == CUDA_SUCCESS && event->op) {
        struct sim_ctx *ctx = event->ctx;
        struct sim_op *op = sim_op_ref(event->op);
        bool done = op->done;
        sim_op_wait(op);
        sim_op_unref(op);
        if (!done) /* for one that is done the device is not asked (measured) */
            sim_ctx_look(sim_ctx_root(ctx));
        sim_pool_synchronised(ctx->device);
        r = ctx->sticky;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_event *start = sim_event_check(start_handle), *end = sim_event_check(end_handle);
    CUresult r = CUDA_SUCCESS;
    if (!start || !end || !start->op || !end->op || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (!start->op->done || !end->op->done)
        r = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((double)((long long)(end->op->done_ns - start->op->done_ns)) / 1e6);
    return sim_unlock_return(r);
}

CUresult sim_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return sim_cuEventElapsedTime_v2(milliseconds, start, end);
}

/* Shared by the context and the green-context form: a green context's own fence covers its own streams only. */
static CUresult fence(CUcontext ctx_handle, CUevent event_handle, struct sim_ctx **ctx, struct sim_event **event) {
    CUresult r = sim_ctx_resolve(ctx_handle, ctx);
    if (r != CUDA_SUCCESS)
        return r;
    *event = sim_event_check(event_handle);
    if (!*event)
        return CUDA_ERROR_INVALID_HANDLE;
    return sim_capture_fence(*ctx);
}

static void after_own_streams(struct sim_stream *stream, void *arg) {
    struct sim_op *op = arg;
    if (stream->ctx->green && stream->ctx->parent == op->ctx)
        sim_op_after(op, stream->tail);
}

CUresult sim_cuCtxRecordEvent(CUcontext ctx_handle, CUevent event_handle) {
    sim_lock();
    struct sim_ctx *ctx;
    struct sim_event *event;
    CUresult r = fence(ctx_handle, event_handle, &ctx, &event);
    if (r == CUDA_SUCCESS && sim_ctx_root(event->ctx) != sim_ctx_root(ctx))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    sim_stream_gate(sim_ctx_root(ctx));
    struct sim_op *op = sim_op_new(sim_ctx_root(ctx), NULL);
    if (ctx->green)
        sim_stream_each(after_own_streams, op);
    else
        sim_op_after_all(op, ctx);
    for (size_t i = 0; i < ctx->barriers; i++)
        sim_op_after(op, ctx->barrier[i]);
    sim_event_record_op(event, op);
    sim_op_start(op);
    sim_op_unref(op);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuCtxWaitEvent(CUcontext ctx_handle, CUevent event_handle) {
    sim_lock();
    struct sim_ctx *ctx;
    struct sim_event *event;
    CUresult r = fence(ctx_handle, event_handle, &ctx, &event);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    sim_stream_gate(sim_ctx_root(ctx));
    if (event->op && !event->op->done) {
        size_t kept = 0;
        for (size_t i = 0; i < ctx->barriers; i++) {
            if (ctx->barrier[i]->done)
                sim_op_unref(ctx->barrier[i]);
            else
                ctx->barrier[kept++] = ctx->barrier[i];
        }
        ctx->barriers = kept;
        if (ctx->barriers == ctx->barrier_room) {
            ctx->barrier_room = ctx->barrier_room ? ctx->barrier_room * 2 : 8;
            ctx->barrier = realloc(ctx->barrier, ctx->barrier_room * sizeof(struct sim_op *));
        }
        ctx->barrier[ctx->barriers++] = sim_op_ref(event->op);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}
