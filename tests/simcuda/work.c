/*
 * work.c — what one operation does when the device reaches it. Runs without sim.lock.
 *
 * Bytes move at this moment and not earlier, so memory that was reused too soon holds the wrong data afterwards. Work on
 * addresses that are no longer mapped is what it is on the device: an illegal address, which sticks to the context.
 */
#include "ipc.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMALL_WORK ((size_t)64 << 10)

static bool fault(struct sim_ctx *ctx, uintptr_t address, size_t size) {
    sim_lock();
    bool mapped = size == 0 || sim_pages_mapped(address, size);
    if (!mapped && !ctx->sticky)
        ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    bool dead = ctx->sticky != CUDA_SUCCESS;
    sim_unlock();
    return dead;
}

static size_t extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
    if (width == 0 || height == 0 || depth == 0)
        return 0;
    return (depth - 1) * slice + (height - 1) * pitch + width;
}

static void fill(uintptr_t dst, size_t count, unsigned value, unsigned elem) {
    if (elem == 1) {
        memset((void *)dst, (int)value, count);
    } else if (elem == 4 && count == 1) { /* a flag: somebody may be waiting on it */
        __atomic_store_n((uint32_t *)dst, value, __ATOMIC_RELEASE);
    } else {
        for (size_t i = 0; i < count; i++)
            memcpy((void *)(dst + i * elem), &value, elem);
    }
}

static void run_set(struct sim_ctx *ctx, const struct sim_work *w) {
    size_t width = w->set.width * w->set.elem;
    if (fault(ctx, w->set.dst, extent(width, w->set.height, 1, w->set.pitch, 0)))
        return;
    for (size_t y = 0; y < w->set.height; y++)
        fill(w->set.dst + y * w->set.pitch, w->set.width, w->set.value, w->set.elem);
}

static void move(uintptr_t dst, uintptr_t src, size_t size) {
    if (size == 4 && (dst & 3) == 0) { /* may be a flag, as above */
        uint32_t word;
        memcpy(&word, (void *)src, 4);
        __atomic_store_n((uint32_t *)dst, word, __ATOMIC_RELEASE);
    } else {
        memmove((void *)dst, (void *)src, size);
    }
}

static void run_copy(struct sim_ctx *ctx, struct sim_work *w) {
    size_t width = w->copy.width, height = w->copy.height, depth = w->copy.depth;
    if (!fault(ctx, w->copy.dst, extent(width, height, depth, w->copy.dst_pitch, w->copy.dst_slice)) &&
        !fault(ctx, w->copy.src, extent(width, height, depth, w->copy.src_pitch, w->copy.src_slice)))
        for (size_t z = 0; z < depth; z++)
            for (size_t y = 0; y < height; y++)
                move(w->copy.dst + z * w->copy.dst_slice + y * w->copy.dst_pitch,
                     w->copy.src + z * w->copy.src_slice + y * w->copy.src_pitch, width);
    free(w->copy.staged);
    w->copy.staged = NULL;
}

static bool satisfied(uint64_t now, const struct sim_work *w) {
    uint64_t value = w->value.value;
    switch (w->value.flags & 7) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return ~(now | value) != 0;
    default:
        return w->value.wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    }
}

static void run_wait_value(struct sim_ctx *ctx, const struct sim_work *w) {
    const struct timespec pause = {.tv_nsec = 50000};
    while (!fault(ctx, w->value.addr, w->value.wide ? 8 : 4)) {
        uint64_t now = w->value.wide ? __atomic_load_n((uint64_t *)w->value.addr, __ATOMIC_ACQUIRE)
                                     : __atomic_load_n((uint32_t *)w->value.addr, __ATOMIC_ACQUIRE);
        if (satisfied(now, w))
            return;
        nanosleep(&pause, NULL);
    }
}

static void run_write_value(struct sim_ctx *ctx, const struct sim_work *w) {
    if (fault(ctx, w->value.addr, w->value.wide ? 8 : 4))
        return;
    if (w->value.wide)
        __atomic_store_n((uint64_t *)w->value.addr, w->value.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)w->value.addr, (uint32_t)w->value.value, __ATOMIC_RELEASE);
}

static void run_host(struct sim_ctx *ctx, const struct sim_work *w) {
    struct sim_thread *self = sim_self();
    self->in_host_function = true;
    if (w->host.callback)
        w->host.callback(w->host.stream, ctx->sticky, w->host.data);
    else
        w->host.fn(w->host.data);
    self->in_host_function = false;
}

bool sim_work_small(const struct sim_work *w) {
    switch (w->kind) {
    case SIM_MEMSET:
        return w->set.width * w->set.elem * w->set.height <= SMALL_WORK;
    case SIM_COPY:
        return w->copy.width * w->copy.height * w->copy.depth <= SMALL_WORK;
    case SIM_WRITE_VALUE:
    case SIM_RELEASE:
    case SIM_SCRIBBLE:
    case SIM_IPC_SIGNAL:
    case SIM_NODE_FREE:
        return true;
    default:
        return false;
    }
}

void sim_work_run(struct sim_ctx *ctx, struct sim_work *w) {
    switch (w->kind) {
    case SIM_HOSTFN:
        run_host(ctx, w);
        break;
    case SIM_MEMSET:
        run_set(ctx, w);
        break;
    case SIM_COPY:
        run_copy(ctx, w);
        break;
    case SIM_WAIT_VALUE:
        run_wait_value(ctx, w);
        break;
    case SIM_WRITE_VALUE:
        run_write_value(ctx, w);
        break;
    case SIM_RELEASE:
        sim_lock();
        sim_alloc_end(w->memory.alloc);
        sim_unlock();
        break;
    case SIM_NODE_FREE:
        fill(w->memory.alloc->base, w->memory.alloc->span < SIM_SMALL ? w->memory.alloc->span : SIM_SMALL, 0xdd, 1);
        break;
    case SIM_SCRIBBLE:
        fill(w->set.dst, w->set.width, 0xdd, 1);
        break;
    case SIM_IPC_SIGNAL:
    case SIM_IPC_AWAIT:
        if (w->kind == SIM_IPC_SIGNAL)
            sim_ipc_event_signal(w->ipc.shared, w->ipc.ticket);
        else
            sim_ipc_event_await(w->ipc.shared, w->ipc.ticket);
        sim_lock();
        sim_ipc_event_unref(w->ipc.shared);
        sim_unlock();
        break;
    default:
        break;
    }
}
