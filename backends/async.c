/*
 * async.c: the driver's own memory pool under cudaMalloc. Two pools of our own for each context (async_pool.c): stream-ordered calls become the driver's on
 * one of them, unchanged; what cudaMalloc and cudaFree promise beyond that is seen to here.
 *
 * cudaMalloc's pointer may be used at once by every stream of every context and device. No record of an allocation would order them all (measured: a device
 * that waits for an event recorded at once after cudaMallocAsync is not behind what the pool ordered), so such an allocation never depends on anything: it is
 * made in a stream that has nothing to wait for, from memory that is idle, and is over when the call returns.
 * cudaFree returns at once, and keeps the block until the work is done that natively it would have waited for (shim/fence.h); only then the pool gets it.
 */
#include "async.h"

#include "config/options.h"
#include "registry.h"
#include "shim/capture.h"
#include "shim/stats.h"

static const size_t least_slack = (size_t)64 << 20; /* freed and not yet done, before a free waits as it would have natively */

typedef struct cuplug_async store_t;
typedef struct cuplug_plugin_block block_t;

static CUresult from_pool(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream) {
    bool own = stream == CU_STREAM_PER_THREAD && cuplug_real_has(cuMemAllocFromPoolAsync_ptsz);

    return (own ? cuplug_real.cuMemAllocFromPoolAsync_ptsz : cuplug_real.cuMemAllocFromPoolAsync)(pointer, size, pool, stream);
}

/* Puts a block into the index. The driver has just given it out, so one that is there was freed where we could not see. The lock is held. */
static block_t *enter(store_t *store, CUdeviceptr pointer, size_t size, enum cuplug_kind kind) {
    block_t *block = cuplug_slab_take(&store->slab), *stale;

    if (!block)
        return NULL;
    *block = (block_t){.address = pointer, .size = size, .context = store->context, .device = store->device, .kind = kind};
    while ((stale = cuplug_plugin_index_insert(&store->index, block))) {
        cuplug_plugin_index_remove(&store->index, stale);
        cuplug_slab_give(&store->slab, stale);
    }
    return block;
}

static void leave(store_t *store, block_t *block) {
    cuplug_plugin_index_remove(&store->index, block);
    cuplug_slab_give(&store->slab, block);
}

/* In the program's own capture mode, in which it fails as natively. The context has been entered. */
static CUresult alloc(store_t *store, const struct cuplug_request *request, struct cuplug_block *answer) {
    bool plain = request->kind == CUPLUG_SYNC || !request->stream_id; /* on a stream that captures it must not become a node of the graph */
    CUstream stream = plain ? store->stream : request->stream;
    CUresult result = from_pool(&answer->pointer, request->size, plain ? store->plain : store->ordered, stream);
    CUstreamCaptureMode mode;
    bool seen;

    if (result != CUDA_SUCCESS)
        return result;
    mode = cuplug_capture_relax();
    if (plain)
        result = cuplug_real.cuStreamSynchronize(store->stream);
    if (result == CUDA_SUCCESS) {
        cuplug_lock(&store->lock);
        answer->cookie = enter(store, answer->pointer, request->size, plain ? CUPLUG_SYNC : CUPLUG_ASYNC);
        seen = store->witness != 0;
        cuplug_unlock(&store->lock);
        if (!answer->cookie)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (!seen)
            cuplug_async_watch(store);
    }
    if (result != CUDA_SUCCESS)
        cuplug_driver_free_async(answer->pointer, stream);
    cuplug_capture_restore(mode);
    return result;
}

static CUresult ask(const struct cuplug_request *request, struct cuplug_block *answer) {
    struct cuplug_context *context = request->context;
    store_t *store;
    CUresult result;

    if (!cuplug_context_enter(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!cuplug_context_push(context)) {
        cuplug_context_leave(context);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    cuplug_async_clear(context->device); /* before any pool is made: one that ended with its context may have the handle of the next */
    result = cuplug_async_of(context, &store);
    if (result == CUDA_SUCCESS)
        result = alloc(store, request, answer);
    if (cuplug_context_answered(context, result) == CUDA_SUCCESS) {
        atomic_fetch_add_explicit(&store->used, request->size, memory_order_relaxed);
        cuplug_async_count(store, false);
    }
    cuplug_context_pop();
    cuplug_context_leave(context);
    return result;
}

/* Takes the first of the waiting blocks if its old work is done; 0 if it is not. */
static CUdeviceptr next_done(store_t *store, const struct cuplug_context *context, size_t *size) {
    CUdeviceptr pointer = 0;
    block_t *block;

    cuplug_lock(&store->lock);
    block = store->oldest;
    if (block && store->context == context && cuplug_fence_passed(&store->fence, block->mark)) {
        pointer = block->address;
        *size = block->size;
        store->oldest = block->next;
        if (!store->oldest)
            store->newest = NULL;
        store->waiting -= block->size;
        leave(store, block);
    }
    cuplug_unlock(&store->lock);
    return pointer;
}

/* The driver did not take it: another time. Its work is done; without memory to say so it is lost. */
static void keep(store_t *store, CUdeviceptr pointer, size_t size) {
    block_t *block;

    cuplug_lock(&store->lock);
    block = enter(store, pointer, size, CUPLUG_SYNC);
    if (block) {
        block->next = store->oldest;
        store->oldest = block;
        if (!store->newest)
            store->newest = block;
        store->waiting += size;
    }
    cuplug_unlock(&store->lock);
}

/* Frees into the pool what the device is done with; bytes. */
static size_t hand_over(store_t *store, struct cuplug_context *context) {
    size_t bytes = 0, size;
    CUstreamCaptureMode mode;
    CUdeviceptr pointer;

    if (cuplug_exiting() || !cuplug_context_enter(context))
        return 0;
    mode = cuplug_capture_relax();
    while ((pointer = next_done(store, context, &size))) {
        if (cuplug_context_answered(context, cuplug_real.cuMemFreeAsync(pointer, store->stream)) != CUDA_SUCCESS) {
            keep(store, pointer, size);
            break;
        }
        bytes += size;
        CUPLUG_COUNT(CUPLUG_BACKEND_ASYNC, store->device, driver_frees, 1);
    }
    cuplug_capture_restore(mode);
    cuplug_context_leave(context);
    atomic_fetch_sub_explicit(&store->used, bytes, memory_order_relaxed);
    return bytes;
}

static size_t ask_and_hand_over(store_t *store, struct cuplug_context *context) {
    size_t bytes;

    cuplug_lock(&store->lock);
    bytes = store->waiting;
    cuplug_unlock(&store->lock);
    if (!bytes)
        return 0;
    cuplug_fence_poll(&store->fence);
    return hand_over(store, context);
}

static size_t wait_and_hand_over(store_t *store, struct cuplug_context *context) {
    cuplug_fence_host_wait(&store->fence, UINT64_MAX);
    return hand_over(store, context);
}

/* What no free recorded; such a record also covers work submitted after the free. While anything captures, only a wait is possible. */
static size_t record_and_hand_over(store_t *store, struct cuplug_context *context) {
    bool any;

    cuplug_lock(&store->lock);
    any = store->oldest != NULL;
    cuplug_unlock(&store->lock);
    if (!any)
        return 0;
    if (cuplug_capturing())
        cuplug_fence_synchronise(&store->fence);
    else
        cuplug_fence_record(&store->fence, cuplug_fence_mark(&store->fence));
    return wait_and_hand_over(store, context);
}

/* What the functions below ask of every context of a device. */
struct question {
    CUdevice device;
    const struct cuplug_context *except;
    size_t (*reclaim)(store_t *store, struct cuplug_context *context);
    size_t bytes;
};

static void reclaim(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    store_t *store = cuplug_async_there(context);

    if (store && context->device == question->device && context != question->except)
        question->bytes += question->reclaim(store, context);
}

/* For an allocation that found no memory, harder each time. The driver takes what its pools have idle itself. */
enum { ASK, WAIT, RECORD, RECORD_OTHERS, EFFORTS };

static size_t try_harder(struct cuplug_context *context, int effort) {
    struct question question = {.device = context->device, .except = effort == RECORD_OTHERS ? context : NULL};
    store_t *store = cuplug_async_there(context);

    if (cuplug_exiting() || !store)
        return 0;
    question.reclaim = effort == ASK ? ask_and_hand_over : effort == WAIT ? wait_and_hand_over : record_and_hand_over;
    if (effort == RECORD)
        return record_and_hand_over(store, context);
    cuplug_context_each(reclaim, &question);
    return question.bytes;
}

static size_t idle(store_t *store, struct cuplug_context *context) {
    size_t bytes, held, used = atomic_load_explicit(&store->used, memory_order_relaxed);

    if (!cuplug_context_enter(context))
        return 0;
    held = cuplug_async_reserved(store);
    cuplug_context_leave(context);
    cuplug_lock(&store->lock);
    bytes = store->waiting;
    cuplug_unlock(&store->lock);
    return bytes + (held > used ? held - used : 0);
}

static size_t async_available(void *self, struct cuplug_context *context, size_t free) {
    struct question question = {.device = context->device, .reclaim = idle};

    (void)self;
    cuplug_context_each(reclaim, &question);
    return free + question.bytes;
}

/* Could waiting help? Nobody is made to wait for what the device does not have. */
static bool hopeless(const struct cuplug_request *request) {
    size_t free = 0, total = 0;

    if (!cuplug_context_enter(request->context))
        return true;
    if (cuplug_context_push(request->context)) {
        cuplug_context_answered(request->context, cuplug_real.cuMemGetInfo_v2(&free, &total));
        cuplug_context_pop();
    }
    cuplug_context_leave(request->context);
    return request->size > total || request->size > async_available(NULL, request->context, free);
}

static CUresult async_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    store_t *store = cuplug_async_there(request->context);
    CUresult result;

    (void)self;
    block->cookie = NULL;
    if (store)
        ask_and_hand_over(store, request->context);
    result = ask(request, block);
    for (int effort = 0; effort < EFFORTS && result == CUDA_ERROR_OUT_OF_MEMORY && !hopeless(request); effort++)
        if (try_harder(request->context, effort))
            result = ask(request, block);
    if (result == CUDA_SUCCESS)
        CUPLUG_COUNT(CUPLUG_BACKEND_ASYNC, request->device, driver_allocs, 1);
    return result;
}

static bool must_wait(const store_t *store) {
    size_t slack = atomic_load_explicit(&store->reserved, memory_order_relaxed) / 4;

    return cuplug_async_options.wait || store->waiting > (slack > least_slack ? slack : least_slack);
}

/* cudaFree of cudaMalloc's: waits for its work, without the host. */
static CUresult free_plain(store_t *store, const struct cuplug_block *block) {
    bool due, wait, there;
    block_t *freed;
    uint64_t mark;

    cuplug_lock(&store->lock);
    there = store->context == block->context && !cuplug_context_gone(block->context);
    if (!there) { /* it ended just now */
        cuplug_unlock(&store->lock);
        return CUDA_SUCCESS;
    }
    freed = block->cookie;
    mark = freed->mark = cuplug_fence_mark_locked(&store->fence);
    if (store->newest)
        store->newest->next = freed;
    else
        store->oldest = freed;
    store->newest = freed;
    store->waiting += freed->size;
    wait = must_wait(store);
    due = cuplug_cache_owe(&store->unrecorded, freed->size, wait);
    cuplug_unlock(&store->lock);
    if (due && !cuplug_fence_record(&store->fence, mark)) {
        cuplug_lock(&store->lock);
        store->unrecorded.overdue = true;
        cuplug_unlock(&store->lock);
    }
    if (wait && !cuplug_async_options.wait) { /* most of it may be done: nobody has asked */
        ask_and_hand_over(store, block->context);
        cuplug_lock(&store->lock);
        wait = must_wait(store);
        cuplug_unlock(&store->lock);
    }
    if (wait && !cuplug_capturing())
        wait_and_hand_over(store, block->context);
    return CUDA_SUCCESS;
}

/* The pool keeps the order; cudaFree of stream-ordered memory has none to keep, natively neither. */
static CUresult free_into_pool(const struct cuplug_block *block, const struct cuplug_release *release) {
    return release->kind == CUPLUG_ASYNC ? cuplug_driver_free_async(block->pointer, release->stream) : cuplug_real.cuMemFree_v2(block->pointer);
}

/* At once. Out of the index first, as the pool may give it out again. What is stream-ordered outlives its context. */
static CUresult free_at_once(store_t *store, const struct cuplug_block *block, const struct cuplug_release *release) {
    CUresult result = CUDA_SUCCESS;
    block_t *freed = block->cookie;
    bool there;

    cuplug_lock(&store->lock);
    there = store->context == block->context;
    if (there)
        cuplug_plugin_index_remove(&store->index, freed);
    cuplug_unlock(&store->lock);
    if (there || block->kind == CUPLUG_ASYNC)
        result = free_into_pool(block, release);
    if (!there)
        return result;
    cuplug_lock(&store->lock);
    if (result == CUDA_SUCCESS || cuplug_plugin_index_insert(&store->index, freed))
        cuplug_slab_give(&store->slab, freed);
    cuplug_unlock(&store->lock);
    return result;
}

static CUresult async_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    store_t *store = cuplug_async_there(block->context);
    CUresult result;

    (void)self;
    if (!store)
        return block->kind == CUPLUG_SYNC ? CUDA_SUCCESS : free_into_pool(block, release);
    if (block->kind == CUPLUG_SYNC && release->kind == CUPLUG_SYNC)
        return free_plain(store, block);
    result = free_at_once(store, block, release);
    if (result != CUDA_SUCCESS)
        return result;
    atomic_fetch_sub_explicit(&store->used, block->size, memory_order_relaxed);
    CUPLUG_COUNT(CUPLUG_BACKEND_ASYNC, block->device, driver_frees, 1);
    return result;
}

struct place {
    CUdeviceptr pointer, base;
};

static void look_in(struct cuplug_context *context, void *arg) {
    struct place *place = arg;
    store_t *store = cuplug_async_there(context);
    block_t *block;

    if (!store || place->base)
        return;
    cuplug_lock(&store->lock);
    block = cuplug_plugin_index_find(store->index, place->pointer);
    if (block)
        place->base = block->address;
    cuplug_unlock(&store->lock);
}

bool cuplug_async_find(CUdeviceptr pointer, CUdeviceptr *base) {
    struct place place = {.pointer = pointer};

    cuplug_context_each(look_in, &place);
    *base = place.base;
    return place.base || cuplug_async_left(pointer);
}

static int async_owns(void *self, CUdeviceptr pointer) {
    CUdeviceptr base;

    (void)self;
    return cuplug_async_find(pointer, &base);
}

/* What the pools give back of what is idle. The stream has nothing to wait for; to have reached its end says so to the pool. */
static size_t give_back(store_t *store, struct cuplug_context *context) {
    size_t before, after;
    CUstreamCaptureMode mode;

    if (!cuplug_context_enter(context))
        return 0;
    mode = cuplug_capture_relax();
    if (cuplug_context_push(context)) {
        cuplug_async_clear(context->device);
        cuplug_context_pop();
    }
    before = cuplug_async_reserved(store);
    cuplug_real.cuMemPoolTrimTo(store->ordered, 0);
    cuplug_async_unwatch(store);
    cuplug_real.cuStreamSynchronize(store->stream);
    cuplug_real.cuMemPoolTrimTo(store->plain, 0);
    after = cuplug_async_reserved(store);
    cuplug_async_count(store, true);
    cuplug_capture_restore(mode);
    cuplug_context_leave(context);
    return before > after ? before - after : 0;
}

static size_t wait_and_give_back(store_t *store, struct cuplug_context *context) {
    wait_and_hand_over(store, context);
    return give_back(store, context);
}

static size_t record_and_give_back(store_t *store, struct cuplug_context *context) {
    record_and_hand_over(store, context);
    return give_back(store, context);
}

static size_t async_trim(void *self, CUdevice device, struct cuplug_context *context) {
    struct question question = {.device = device, .reclaim = wait_and_give_back};

    (void)self, (void)context;
    cuplug_context_each(reclaim, &question);
    if (!question.bytes) {
        question.reclaim = record_and_give_back;
        cuplug_context_each(reclaim, &question);
    }
    return question.bytes;
}

static void async_context_lost(void *self, struct cuplug_context *context) {
    (void)self;
    cuplug_async_leave(context);
}

void cuplug_async_reached(struct cuplug_context *context, CUdevice by) {
    store_t *store = cuplug_async_there(context);

    if (!store || !cuplug_context_enter(context))
        return;
    cuplug_async_reach(store, by);
    cuplug_context_leave(context);
}

const struct cuplug_backend_ops cuplug_backend_async = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "async",
    .alloc = async_alloc,
    .free = async_free,
    .owns = async_owns,
    .available = async_available,
    .trim = async_trim,
    .context_lost = async_context_lost,
};
