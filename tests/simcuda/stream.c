/*
 * stream.c — streams, and the edges that stream order adds to the device's work.
 *
 * The legacy stream waits for all blocking streams and they wait for it; per-thread default streams are blocking ones.
 * A launch queues up behind a free that waits for the device, as natively (FACTS: a thread blocked in cudaFree also
 * blocks other threads' launches).
 */
#include "ipc.h"

#include <stdlib.h>
#include <string.h>

void sim_stream_gate(struct sim_ctx *ctx) {
    while (ctx->freeing > 0)
        pthread_cond_wait(&sim.done, &sim.lock);
}

static struct sim_stream *make(struct sim_ctx *ctx, enum sim_stream_type type, unsigned flags, int priority) {
    struct sim_stream *stream = sim_stream_new();
    stream->type = type;
    stream->ctx = ctx;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    return stream;
}

static struct sim_stream *per_thread(struct sim_ctx *ctx) {
    struct sim_thread *self = sim_self();
    struct sim_stream *stream = self->stream;
    if (stream && stream->live && stream->id == self->stream_id && stream->ctx == ctx)
        return stream;
    stream = sim_stream_find_per_thread(ctx, self->id);
    if (!stream) {
        stream = make(ctx, SIM_PER_THREAD, CU_STREAM_DEFAULT, 0);
        stream->thread = self->id;
    }
    self->stream = stream;
    self->stream_id = stream->id;
    return stream;
}

CUresult sim_stream_resolve(CUstream handle, struct sim_stream **out) {
    if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        struct sim_stream *stream = sim_stream_check(handle);
        if (!stream || stream->type != SIM_USER)
            return CUDA_ERROR_INVALID_HANDLE;
        *out = stream;
        return stream->ctx->sticky;
    }
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (handle == CU_STREAM_PER_THREAD || (handle == NULL && sim_self()->per_thread)) {
        *out = per_thread(ctx);
    } else {
        if (!ctx->legacy)
            ctx->legacy = make(ctx, SIM_LEGACY, CU_STREAM_DEFAULT, 0);
        *out = ctx->legacy;
    }
    return CUDA_SUCCESS;
}

static void after_barrier(struct sim_op *op, struct sim_ctx *ctx) {
    size_t kept = 0;
    for (size_t i = 0; i < ctx->barriers; i++) {
        struct sim_op *earlier = ctx->barrier[i];
        if (earlier->done) {
            sim_op_unref(earlier);
            continue;
        }
        sim_op_after(op, earlier);
        ctx->barrier[kept++] = earlier;
    }
    ctx->barriers = kept;
}

static void after_stream(struct sim_op *op, struct sim_stream *stream) {
    struct sim_ctx *root = op->ctx;
    sim_op_after(op, stream->tail);
    if (stream->type == SIM_LEGACY && root->blocking > 0) {
        for (struct sim_op *o = root->ops; o; o = o->older)
            if (o->blocking)
                sim_op_after(op, o);
    } else if (stream->type != SIM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        if (root->legacy)
            sim_op_after(op, root->legacy->tail);
    }
}

struct sim_op *sim_stream_begin(struct sim_stream *stream, const struct sim_work *work) {
    struct sim_ctx *root = sim_ctx_root(stream->ctx);
    struct sim_op *op = sim_op_new(root, work);
    after_stream(op, stream);
    after_barrier(op, root);
    if (stream->ctx != root)
        after_barrier(op, stream->ctx);
    return op;
}

void sim_stream_end(struct sim_stream *stream, struct sim_op *op) {
    sim_op_replace(&stream->tail, op);
    if (stream->type != SIM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        op->blocking = stream->id;
        op->ctx->blocking++;
    }
    sim_op_start(op);
}

CUresult sim_submit(struct sim_stream *stream, const struct sim_work *work, struct sim_op **out) {
    sim_stream_gate(sim_ctx_root(stream->ctx));
    if (!stream->live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return sim_capture_add(stream, work, NULL);
    CUresult r = sim_capture_implicit(stream);
    if (r != CUDA_SUCCESS)
        return r;
    struct sim_op *op = sim_stream_begin(stream, work);
    sim_stream_end(stream, op);
    if (out)
        *out = op;
    else
        sim_op_unref(op);
    return CUDA_SUCCESS;
}

CUresult sim_submit_marker(struct sim_stream *stream, struct sim_op **out) {
    static const struct sim_work nothing = {.kind = SIM_EMPTY};
    return sim_submit(stream, &nothing, out);
}

void sim_stream_destroy(struct sim_stream *stream) {
    if (stream->capture)
        sim_capture_forget_stream(stream);
    if (stream->ctx->legacy == stream)
        stream->ctx->legacy = NULL;
    sim_op_replace(&stream->tail, NULL); /* its work goes on */
    free(stream->cap_deps);
    sim_stream_drop(stream);
}

static CUresult create(CUstream *out, unsigned flags, int priority) {
    if (!out || (flags & ~CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        *out = (CUstream)make(ctx, SIM_USER, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    return sim_unlock_return(r);
}

CUresult sim_cuStreamCreate(CUstream *out, unsigned flags) {
    return create(out, flags, 0);
}

CUresult sim_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    return create(out, flags, priority);
}

CUresult sim_cuStreamDestroy_v2(CUstream handle) {
    sim_lock();
    struct sim_stream *stream = sim_stream_check(handle);
    if (!stream || stream->type != SIM_USER)
        return sim_unlock_return(CUDA_ERROR_INVALID_HANDLE);
    CUresult r = stream->ctx->sticky;
    sim_stream_destroy(stream);
    return sim_unlock_return(r);
}

CUresult sim_cuStreamDestroy(CUstream handle) {
    return sim_cuStreamDestroy_v2(handle);
}

static bool idle(struct sim_stream *stream) {
    if (stream->tail && !stream->tail->done)
        return false;
    return stream->type != SIM_LEGACY || sim_ctx_root(stream->ctx)->blocking == 0;
}

CUresult sim_cuStreamSynchronize(CUstream handle) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        r = sim_capture_sync(stream);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_ctx *ctx = stream->ctx;
    int device = ctx->device;
    if (!idle(stream)) {
        struct sim_op *marker = sim_op_new(sim_ctx_root(ctx), NULL); /* no barrier: a fence alone keeps no stream busy */
        after_stream(marker, stream);
        sim_op_start(marker);
        sim_op_wait(marker);
        sim_op_unref(marker);
    }
    sim_pool_synchronised(device);
    sim_ctx_look(sim_ctx_root(ctx));
    return sim_unlock_return(sim_ctx_root(ctx)->sticky);
}

CUresult sim_cuStreamQuery(CUstream handle) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        r = sim_capture_sync(stream);
    if (r == CUDA_SUCCESS) {
        sim_ctx_look(sim_ctx_root(stream->ctx));
        r = sim_ctx_root(stream->ctx)->sticky;
    }
    if (r == CUDA_SUCCESS && !idle(stream))
        r = CUDA_ERROR_NOT_READY;
    return sim_unlock_return(r);
}

CUresult sim_cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    if (flags & ~CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    struct sim_event *event = sim_event_check(event_handle);
    if (r == CUDA_SUCCESS && !event)
        r = CUDA_ERROR_INVALID_HANDLE;
    bool handled = false;
    if (r == CUDA_SUCCESS)
        r = sim_capture_wait(stream, event, flags & CU_EVENT_WAIT_EXTERNAL, &handled);
    if (r != CUDA_SUCCESS || handled)
        return sim_unlock_return(r);
    sim_stream_gate(sim_ctx_root(stream->ctx));
    if (event->shared) {
        struct sim_work await = {.kind = SIM_IPC_AWAIT,
                                 .ipc = {sim_ipc_event_ref(event->shared), sim_ipc_event_submitted(event->shared)}};
        r = sim_submit(stream, &await, NULL);
    } else if (event->op && !event->op->done) {
        struct sim_op *op = sim_stream_begin(stream, NULL);
        sim_op_after(op, event->op);
        sim_stream_end(stream, op);
        sim_op_unref(op);
    }
    return sim_unlock_return(r);
}

/* The questions that only read: one lock, one field. */
#define ANSWER_IF(allowed, expression)                                                                                                       \
    do {                                                                                                                         \
        if (!out)                                                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                                                     \
        sim_lock();                                                                                                              \
        struct sim_stream *stream;                                                                                               \
        CUresult r = sim_stream_resolve(handle, &stream);                                                                        \
        if (r == CUDA_SUCCESS)                                                                                                   \
            r = (allowed);                                                                                                       \
        if (r == CUDA_SUCCESS)                                                                                                   \
            *out = (expression);                                                                                                 \
        return sim_unlock_return(r);                                                                                             \
    } while (0)
#define ANSWER(expression) ANSWER_IF(CUDA_SUCCESS, expression)

CUresult sim_cuStreamGetId(CUstream handle, unsigned long long *out) {
    ANSWER_IF(sim_capture_identity(stream), stream->id);
}
CUresult sim_cuStreamGetFlags(CUstream handle, unsigned *out) {
    ANSWER(stream->flags);
}
CUresult sim_cuStreamGetPriority(CUstream handle, int *out) {
    ANSWER(stream->priority);
}
CUresult sim_cuStreamGetCtx(CUstream handle, CUcontext *out) {
    ANSWER((CUcontext)stream->ctx);
}
CUresult sim_cuStreamGetDevice(CUstream handle, CUdevice *out) {
    ANSWER(stream->ctx->device);
}
#undef ANSWER
#undef ANSWER_IF

static CUresult submit_to(CUstream handle, const struct sim_work *work) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        r = sim_submit(stream, work, NULL);
    return sim_unlock_return(r);
}

CUresult sim_cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data) {
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_HOSTFN, .host = {.fn = fn, .data = data}};
    return submit_to(handle, &work);
}

CUresult sim_cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags) {
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_HOSTFN, .host = {.callback = callback, .stream = handle, .data = data}};
    return submit_to(handle, &work);
}

static CUresult value(CUstream handle, enum sim_work_kind kind, CUdeviceptr addr, uint64_t v, unsigned flags, bool wide) {
    if (addr % (wide ? 8 : 4) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool known = sim_find(addr) != NULL;
    sim_unlock();
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = kind, .value = {addr, v, flags, wide}};
    return submit_to(handle, &work);
}

CUresult sim_cuStreamWaitValue32_v2(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags) {
    return value(s, SIM_WAIT_VALUE, a, v, flags, false);
}

CUresult sim_cuStreamWaitValue64_v2(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned flags) {
    return value(s, SIM_WAIT_VALUE, a, v, flags, true);
}

CUresult sim_cuStreamWriteValue32_v2(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags) {
    return value(s, SIM_WRITE_VALUE, a, v, flags, false);
}

CUresult sim_cuStreamWriteValue64_v2(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned flags) {
    return value(s, SIM_WRITE_VALUE, a, v, flags, true);
}

CUresult sim_cuStreamWaitValue32(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags) {
    return value(s, SIM_WAIT_VALUE, a, v, flags, false);
}

CUresult sim_cuStreamWriteValue32(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags) {
    return value(s, SIM_WRITE_VALUE, a, v, flags, false);
}
