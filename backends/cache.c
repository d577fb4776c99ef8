/*
 * cache.c: allocation and free of the caching engine. See cache.h for what a block goes through and which lock guards what.
 */
#include "cache.h"

#include "shim/capture.h"
#include "shim/debug.h"
#include "shim/others.h"
#include "shim/stats.h"

#include <sched.h>

#define MIB ((size_t)1 << 20)

static const size_t least_slack = 8 * MIB;   /* waiting memory that is cheaper left alone than waited for */
static const size_t least_bound = 32 * MIB;  /* … and that no free waits for, where the device cannot be told to */
static const size_t most_step = 64 * MIB;    /* the most that a segment takes more than is needed now */
static const size_t least_paged = 16 * MIB;  /* blocks that start a page: what is cut off before them is lost to large ones */

static size_t at_least(size_t least, size_t bytes) {
    return bytes > least ? bytes : least;
}

enum { TIGHT_FREES = 4096 }; /* after memory was out, so many record each, and go to everybody */

/* So little may be waiting that growing is better than a device wait. The standard is 3% of what there is (measured with the traces: an eighth costs
 * three times the memory for three quarters of the waits); a percentage is 8 MiB at least. */
static size_t slack(const struct cuplug_cache *cache) {
    struct cuplug_amount wanted = cache->policy->slack;

    return wanted.percent ? at_least(least_slack, cache->heap.reserved / 100 * wanted.value) : wanted.value;
}

/* Can no device wait bring waiting memory back? */
static bool completed_only(const struct cuplug_cache *cache) {
    return cache->policy->completed_only || cuplug_context_shared();
}

/* The class that a block for the request has if a thread may keep it: small, of no special alignment; else -1. */
static int class_of(const struct cuplug_request *request) {
    return request->alignment <= CUPLUG_CACHE_GRAIN ? cuplug_cache_class(request->size) : -1;
}

/* … that the thread may look for among what it keeps for any stream. (In the order of a stream, cuplug_backend_take_in_order has looked.) */
static int plain_class_of(const struct cuplug_request *request) {
    return request->kind == CUPLUG_SYNC ? class_of(request) : -1;
}

/* Is an arena nearly full? The next allocation may then need just the bytes that are freed now, and must find a record that it can wait for. The lock
 * is held. */
static void note_room(struct cuplug_cache *cache) {
    size_t ready = cache->heap.reserved - cache->live_bytes - cache->waiting.bytes;

    if (cache->policy->keeps)
        cuplug_cache_close(cache, CUPLUG_CACHE_SPARSE, ready < cache->heap.reserved / 4);
}

/* Takes a block that may be used now. The lock is held. */
static struct cuplug_heap_block *take(struct cuplug_cache *cache, const struct cuplug_request *request) {
    struct cuplug_heap_block *block = NULL;

    if (cache->context != request->context) /* it ended just now, and the cache serves another */
        return NULL;
    if (request->kind == CUPLUG_ASYNC) {
        struct cuplug_cache_stream *stream = cuplug_cache_stream_find(cache, request->context, request->stream_id);

        if (stream)
            block = cuplug_heap_take(&cache->heap, &stream->list, request->size, request->alignment);
    }
    if (!block)
        block = cuplug_heap_take(&cache->heap, &cache->ready, request->size, request->alignment);
    if (block)
        cuplug_cache_lives(cache, block);
    note_room(cache);
    return block;
}

/* The same after moving over what the fences have passed. *crowded: so much is still waiting that a device wait beats new memory. */
static struct cuplug_heap_block *drain_and_take(struct cuplug_cache *cache, const struct cuplug_request *request, bool *crowded) {
    struct cuplug_heap_block *block;
    CUdeviceptr address;

    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    block = take(cache, request);
    *crowded = cache->waiting.bytes > (cache->policy->patient ? 0 : slack(cache));
    cuplug_unlock(&cache->lock);
    if (!block && plain_class_of(request) >= 0)
        block = cuplug_cache_thread_take(cache, request->context, plain_class_of(request), false, &address);
    return block;
}

/* Memory for a segment. A synchronous allocation fails as the driver's would, in the capture mode of the calling thread; a stream-ordered one succeeds beside
 * the capture of another stream (natively it is refused and spoils that), so its segment must not spoil it either. The context has been entered. */
static CUresult new_segment(struct cuplug_cache *cache, struct cuplug_context *context, size_t size, bool relaxed, CUdeviceptr *base) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult result;

    if (!cuplug_context_push(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (relaxed)
        mode = cuplug_capture_relax();
    result = cuplug_context_answered(context, cache->policy->segment(context, size, base));
    if (relaxed)
        cuplug_capture_restore(mode);
    cuplug_context_pop();
    return result;
}

/* Bytes that any work may have now, in however many pieces. The lock is held. */
static size_t ready_bytes(const struct cuplug_cache *cache) {
    size_t bytes = cache->heap.reserved - cache->live_bytes - cache->waiting.bytes - cache->kept[0].bytes - cache->kept[1].bytes;

    for (const struct cuplug_cache_stream *stream = cache->streams; stream; stream = stream->next)
        bytes -= stream->list.queue.bytes;
    return bytes;
}

/* Adds the segment to the heap and cuts the block from it; what is left is ready. False if it could not be added. */
static bool add_segment(struct cuplug_cache *cache, const struct cuplug_request *request, CUdeviceptr base, size_t size,
                        struct cuplug_heap_block **block) {
    struct cuplug_list fresh = {0};
    struct cuplug_heap_block *rest;
    bool added;

    cuplug_lock(&cache->lock);
    cache->scattered += !cache->policy->whole && ready_bytes(cache) >= request->size;
    cache->given_back = 0;
    added = cache->context == request->context && cuplug_heap_add(&cache->heap, &fresh, base, size);
    cuplug_cache_thread_share(cache);
    if (added && cache->policy->decay)
        fresh.root->since = cuplug_cache_now();
    *block = added ? cuplug_heap_take(&cache->heap, &fresh, request->size, request->alignment) : NULL;
    if (*block)
        cuplug_cache_lives(cache, *block);
    while ((rest = fresh.root)) {
        cuplug_heap_withdraw(rest);
        cuplug_heap_give(&cache->heap, &cache->ready, rest);
    }
    cuplug_unlock(&cache->lock);
    return added;
}

/* A new segment of `size` bytes from the driver, and the block cut from it. The context has been entered: it must not end between the driver's answer
 * and the heap's. */
static CUresult grow_by(struct cuplug_cache *cache, const struct cuplug_request *request, size_t size, struct cuplug_heap_block **block) {
    struct cuplug_context *context = request->context;
    int backend = cache->policy->backend;
    CUdeviceptr base = 0;
    CUresult result = new_segment(cache, context, size, request->kind == CUPLUG_ASYNC, &base);

    if (result != CUDA_SUCCESS)
        return result;
    CUPLUG_COUNT(backend, context->device, driver_allocs, 1);
    CUPLUG_LEVEL(backend, context->device, reserved_bytes, (int64_t)size);
    if (!add_segment(cache, request, base, size, block) && cuplug_context_answered(context, cuplug_cache_release(cache->policy, context, base, size)) == CUDA_SUCCESS) {
        CUPLUG_COUNT(backend, context->device, driver_frees, 1);
        cuplug_cache_segment_gone(cache->policy, context, size);
    }
    return *block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

size_t cuplug_cache_step(size_t reserved) {
    return cuplug_cache_round_up(reserved < most_step ? reserved : most_step, CUPLUG_CACHE_PAGE);
}

size_t cuplug_cache_reserved(struct cuplug_cache *cache) {
    size_t bytes;

    cuplug_lock(&cache->lock);
    bytes = cache->heap.reserved;
    cuplug_unlock(&cache->lock);
    return bytes;
}

/* The one segment of a policy that keeps it. Where two threads come first, one asks the driver and the other waits for the answer: nothing else can
 * serve it, and a second segment is not to be. */
static CUresult reserve(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool idle = false, crowded;
    size_t step;

    while (!atomic_compare_exchange_weak(&cache->reserving, &idle, true)) {
        idle = false;
        sched_yield();
    }
    step = cache->policy->step(request->context, cuplug_cache_reserved(cache), request->size);
    if (step)
        result = grow_by(cache, request, step, block);
    else if ((*block = drain_and_take(cache, request, &crowded)))
        result = CUDA_SUCCESS;
    atomic_store(&cache->reserving, false);
    return result;
}

/* While anything captures, only the free of an allocation of a byte can wait for what is freed (cuplug_fence_synchronise): the last page is for that, until
 * there is no other way. */
static bool leaves_a_page(struct cuplug_context *context, size_t size) {
    return !cuplug_capturing() || size + CUPLUG_CACHE_PAGE <= cuplug_cache_device_free(context);
}

/* How much to grow by. What went back because it was scattered is taken again in one piece; where little idle memory is to be kept, nothing is taken ahead. */
static size_t step_of(struct cuplug_cache *cache, struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cache->policy->step(context, reserved, least), again;

    cuplug_lock(&cache->lock);
    again = cache->given_back;
    cuplug_unlock(&cache->lock);
    if (again > step)
        step = again;
    return step > least && step - least > cache->keep ? least : step;
}

static CUresult grow(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    size_t least = cuplug_cache_round_up(request->size, CUPLUG_CACHE_PAGE), step, before;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool grown;

    if (!cuplug_context_enter(request->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    before = cuplug_cache_reserved(cache);
    if (cache->policy->keeps) {
        result = reserve(cache, request, block);
    } else if ((step = step_of(cache, request->context, before, least))) {
        if (leaves_a_page(request->context, step))
            result = grow_by(cache, request, step, block);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && step > least && leaves_a_page(request->context, least))
            result = grow_by(cache, request, least, block);
    }
    grown = cuplug_cache_reserved(cache) > before;
    cuplug_context_leave(request->context);
    if (grown)
        cuplug_others_look();
    return result;
}

/* `last`: all that was freed has been waited for. */
static CUresult retry(struct cuplug_cache *cache, const struct cuplug_request *request, bool last, struct cuplug_heap_block **block) {
    size_t size = cuplug_cache_round_up(request->size, CUPLUG_CACHE_PAGE);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool crowded;

    cuplug_cache_wait(cache);
    if (cuplug_context_fault(request->context))
        return cuplug_context_fault(request->context);
    *block = drain_and_take(cache, request, &crowded);
    if (*block)
        return CUDA_SUCCESS;
    if (cache->policy->keeps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cuplug_cache_give_back_all(cache->policy, request->device);
    if (!cuplug_context_enter(request->context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (last || leaves_a_page(request->context, size))
        result = grow_by(cache, request, size, block);
    cuplug_context_leave(request->context);
    return result;
}

/* Could giving everything back to the driver satisfy the request? If not, nobody is made to wait for it. */
static bool hopeless(struct cuplug_cache *cache, struct cuplug_context *context, size_t size) {
    size_t free = 0, total = 0, idle = cuplug_cache_idle(cache->policy, context);
    bool answer = true;

    if (!cuplug_context_enter(context))
        return true;
    if (cache->policy->room) {
        answer = size > idle && size - idle > cache->policy->room(context);
    } else if (cuplug_context_push(context)) {
        cuplug_context_answered(context, cuplug_real.cuMemGetInfo_v2(&free, &total));
        cuplug_context_pop();
        answer = size > total || size > free + idle;
    }
    cuplug_context_leave(context);
    return answer;
}

/* Waits for what frees recorded that natively would have waited for as much, and for no more. */
static bool wait_and_take(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    bool crowded;

    if (cuplug_fence_host_wait(&cache->fence, atomic_load(&cache->fence.allowed)))
        *block = drain_and_take(cache, request, &crowded);
    return *block;
}

/* First for what it can wait for without fear; then for all that frees have recorded; what no free recorded yet only if even that does not do, since
 * such a record also covers work submitted after the free; in other contexts last of all. */
static CUresult wait_for_memory(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    CUresult result;
    bool recorded;

    cuplug_lock(&cache->lock);
    cuplug_cache_close(cache, CUPLUG_CACHE_TIGHT, true);
    cache->tight = TIGHT_FREES;
    cuplug_cache_release_kept(cache, true);
    cuplug_unlock(&cache->lock);
    if (wait_and_take(cache, request, block))
        return CUDA_SUCCESS;
    result = retry(cache, request, false, block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && cuplug_cache_record_all(cache))
        result = retry(cache, request, false, block);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || cache->policy->keeps)
        return result;
    recorded = cuplug_cache_record_others(cache->policy, request->context);
    if (recorded || cuplug_capturing())
        result = retry(cache, request, true, block);
    return result;
}

/* The one case where an allocation waits. Meanwhile no thread keeps anything, so what is free is found. */
static CUresult out_of_memory(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool crowded;

    if (cuplug_exiting())
        return result;
    atomic_fetch_add(&cache->closed, CUPLUG_CACHE_WANTED); /* see usable() of cache_thread.c */
    cuplug_cache_thread_collect(cache);
    if ((*block = drain_and_take(cache, request, &crowded)))
        result = CUDA_SUCCESS;
    else if (!hopeless(cache, request->context, request->size))
        result = wait_for_memory(cache, request, block);
    atomic_fetch_sub(&cache->closed, CUPLUG_CACHE_WANTED);
    return result;
}

/* A block that is done, or that the device is told to wait for. */
static bool reuse(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    bool crowded;

    cuplug_cache_poll(cache);
    if (cuplug_context_fault(request->context))
        return false;
    *block = drain_and_take(cache, request, &crowded);
    if (*block)
        return true;
    if (cuplug_debug_fault("record_in_alloc")) {
        crowded = cuplug_fence_record(&cache->fence, cuplug_fence_mark(&cache->fence));
        cuplug_fence_allow(&cache->fence);
    }
    if (crowded && !completed_only(cache) && cuplug_fence_wait(&cache->fence))
        *block = drain_and_take(cache, request, &crowded);
    if (!*block && request->kind == CUPLUG_ASYNC && !completed_only(cache))
        *block = cuplug_cache_stream_follow(cache, request);
    return *block;
}

static CUresult miss(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block **block) {
    if (reuse(cache, request, block))
        return CUDA_SUCCESS;
    cuplug_cache_thread_collect(cache); /* what threads keep is no reason to grow */
    if (reuse(cache, request, block))
        return CUDA_SUCCESS;
    return cuplug_context_fault(request->context) ? cuplug_context_fault(request->context) : grow(cache, request, block);
}

/* No block is there for it: asks, waits, grows. Rather off a page than waited for, or not at all: nobody promised more than `alignment`. */
static CUresult search(struct cuplug_cache *cache, const struct cuplug_request *request, size_t alignment, struct cuplug_heap_block **block) {
    struct cuplug_request wanted = *request;
    CUresult result = miss(cache, &wanted, block);
    bool crowded;

    if (result == CUDA_ERROR_OUT_OF_MEMORY && wanted.alignment > alignment) {
        wanted.alignment = alignment;
        *block = drain_and_take(cache, &wanted, &crowded);
        if (*block)
            return CUDA_SUCCESS;
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? out_of_memory(cache, &wanted, block) : result;
}

/* What the program gets. The lock is held, as nowhere else a descriptor is sure to be the block's still: a context that ends gives them all away. */
static void hand_out(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_heap_block *taken, struct cuplug_block *block) {
    taken->class = (signed char)class_of(request);
    block->pointer = taken->address;
    block->cookie = taken;
    if (request->kind == CUPLUG_ASYNC)
        cuplug_cache_ordered_more(cache, request->size);
}

/* From what is everybody's and ready: as `wanted`, for the request; with more for the thread to keep. */
static bool take_along(struct cuplug_cache *cache, const struct cuplug_request *request, const struct cuplug_request *wanted, struct cuplug_block *block) {
    int class = plain_class_of(request);
    struct cuplug_queue stock = {0};
    struct cuplug_heap_block *taken, *more;
    size_t many;
    struct cuplug_magazine *magazine = cuplug_cache_thread_open(cache, request->context, class, &many);

    cuplug_lock(&cache->lock);
    taken = take(cache, wanted);
    if (taken)
        hand_out(cache, request, taken, block);
    while (taken && stock.blocks < many && (more = take(cache, wanted))) {
        more->class = (signed char)class;
        cuplug_queue_push(&stock, more);
    }
    cuplug_unlock(&cache->lock);
    if (magazine)
        cuplug_cache_thread_stock(magazine, class, &stock);
    return taken;
}

/* From what is everybody's. */
static CUresult take_or_search(struct cuplug_cache *cache, const struct cuplug_request *request, struct cuplug_block *block) {
    struct cuplug_request wanted = *request; /* in the heap's grain */
    int class = cuplug_cache_class(request->size);
    struct cuplug_heap_block *taken = NULL;
    CUresult result;
    size_t alignment;

    wanted.size = class >= 0 ? cuplug_cache_class_size(class) : cuplug_cache_round_up(request->size, CUPLUG_CACHE_GRAIN);
    if (wanted.alignment < CUPLUG_CACHE_GRAIN)
        wanted.alignment = CUPLUG_CACHE_GRAIN;
    alignment = wanted.alignment;
    if (wanted.size >= least_paged && wanted.alignment < CUPLUG_CACHE_PAGE) /* the driver's large allocations start a page */
        wanted.alignment = CUPLUG_CACHE_PAGE;
    if (take_along(cache, request, &wanted, block))
        return CUDA_SUCCESS;
    result = search(cache, &wanted, alignment, &taken);
    if (result != CUDA_SUCCESS)
        return result;
    cuplug_lock(&cache->lock);
    if (cache->context == request->context && !cuplug_context_gone(request->context))
        hand_out(cache, request, taken, block);
    else
        result = CUDA_ERROR_INVALID_CONTEXT;
    cuplug_unlock(&cache->lock);
    return result;
}

CUresult cuplug_cache_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    struct cuplug_cache *cache = cuplug_cache_of(self, request->context);
    int class = plain_class_of(request);

    if (!cache || request->size > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->cookie = class < 0 ? NULL : cuplug_cache_thread_take(cache, request->context, class, true, &block->pointer);
    return block->cookie ? CUDA_SUCCESS : take_or_search(cache, request, block);
}

void cuplug_cache_queue(struct cuplug_cache *cache, struct cuplug_heap_block *block) {
    block->mark = cuplug_fence_mark(&cache->fence);
    block->state = CUPLUG_BLOCK_WAITING;
    cuplug_queue_push(&cache->waiting, block);
}

bool cuplug_cache_record(struct cuplug_fence *fence, uint64_t mark) {
    return !cuplug_debug_fault("record_in_alloc") && cuplug_fence_record(fence, mark);
}

/* Records for a debt that was due, of frees up to this mark. */
static void record(struct cuplug_cache *cache, struct cuplug_fence *fence, struct cuplug_debt *debt, uint64_t mark) {
    if (cuplug_cache_record(fence, mark))
        return;
    cuplug_lock(&cache->lock);
    debt->overdue = true;
    cuplug_unlock(&cache->lock);
}

/* If another context's stream could not be recorded, any free there makes up for it. */
static void record_stream(struct cuplug_cache *cache, struct cuplug_cache_stream *stream, uint64_t mark) {
    if (!cuplug_cache_stream_foreign(cache, stream))
        record(cache, &stream->fence, &stream->unrecorded, mark);
    else if (!cuplug_cache_record(&stream->fence, mark))
        cuplug_cache_stream_overdue(cache, stream);
}

/* A block freed in the order of a stream whose context is not served (a green one's), so that we would not see it end. Rare; the host waits. */
static bool foreign_stream_done(const struct cuplug_policy *policy, struct cuplug_context *context, CUstream stream) {
    CUstreamCaptureMode mode;
    CUresult result;

    if (context->origin) { /* watched like the memory's own, so it needs a fence, too */
        cuplug_cache_of(policy, context);
        return false;
    }
    mode = cuplug_capture_relax();
    result = cuplug_context_answered(context, cuplug_real.cuStreamSynchronize(stream));
    cuplug_capture_restore(mode);
    return result == CUDA_SUCCESS;
}

/* See note_room(). The lock is held. */
static bool needed_soon(const struct cuplug_cache *cache, size_t freed) {
    return cache->policy->keeps && cache->unrecorded.bytes + freed > (cache->heap.reserved - cache->live_bytes - cache->waiting.bytes) / 4;
}

/* Counts a block freed in a stream's order: for the stream, and for the context, as streams that are not used again (of threads that ended, say) never come to
 * record by themselves. True if it is time to record, on *stream or (then NULL) for the whole context. The lock is held. */
static bool owe_in_stream(struct cuplug_cache *cache, struct cuplug_cache_stream **stream, size_t size) {
    struct cuplug_debt *mine = &(*stream)->unrecorded, *all = &cache->unrecorded, before = *mine;

    if (cuplug_cache_stream_foreign(cache, *stream)) {
        (*stream)->pins++;
        return true;
    }
    if (cuplug_cache_owe(mine, size, (*stream)->asked_for && (*stream)->asked_for--)) {
        all->bytes -= before.bytes < all->bytes ? before.bytes : all->bytes;
        all->blocks -= before.blocks < all->blocks ? before.blocks : all->blocks;
        (*stream)->pins++;
        return true;
    }
    if (!cuplug_hooked || !cuplug_fence_of_contexts() || !cuplug_cache_owe(all, size, false))
        return false;
    *stream = NULL;
    return true;
}

/* Where no device wait will bring the memory back, the free waits in the end, as it always did natively. */
static bool must_wait(const struct cuplug_cache *cache) {
    return cache->policy->free_waits || (completed_only(cache) && cache->waiting.bytes > 2 * at_least(least_bound, cache->heap.reserved / 8));
}

/* Nobody asked about what is waiting while allocations had enough that is ready: most of it may be done. */
static bool still_must_wait(struct cuplug_cache *cache) {
    bool answer;

    if (cache->policy->free_waits)
        return true;
    cuplug_cache_poll(cache);
    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    answer = must_wait(cache);
    cuplug_unlock(&cache->lock);
    return answer;
}

/* Where what a thread kept went to everybody, it may be too much. */
static __attribute__((noinline)) void spilled(struct cuplug_cache *cache, struct cuplug_context *context) {
    bool wait;

    cuplug_lock(&cache->lock);
    wait = must_wait(cache);
    cuplug_unlock(&cache->lock);
    if (wait && !cuplug_capturing() && still_must_wait(cache))
        cuplug_fence_host_wait(&cache->fence, UINT64_MAX);
    cuplug_cache_look_after(cache, context);
}

static inline void sweep_if_due(struct cuplug_cache *cache) {
    if (atomic_load_explicit(&cache->sweeping, memory_order_relaxed))
        cuplug_cache_stream_sweep(cache);
}

/* To everybody's. */
static __attribute__((noinline)) void free_to_all(struct cuplug_cache *cache, const struct cuplug_block *block,
                                                  const struct cuplug_release *release) {
    struct cuplug_heap_block *freed = block->cookie;
    struct cuplug_cache_stream *stream = NULL;
    bool due = false, wait = false, untidy, idle = release->kind == CUPLUG_SYNC && block->kind == CUPLUG_ASYNC;
    uint64_t mark = 0;
    size_t size;

    if (release->kind == CUPLUG_ASYNC && release->context != block->context)
        idle = foreign_stream_done(cache->policy, release->context, release->stream);
    cuplug_lock(&cache->lock);
    if (cache->context != block->context || cuplug_context_gone(block->context)) { /* its context ended just now */
        cuplug_unlock(&cache->lock);
        return;
    }
    size = freed->size; /* it may merge */
    cuplug_cache_dies(cache, freed);
    if (block->kind == CUPLUG_ASYNC)
        cuplug_cache_ordered_less(cache, block->size);
    cuplug_cache_release_kept(cache, false);
    if (cache->tight && !--cache->tight)
        cuplug_cache_close(cache, CUPLUG_CACHE_TIGHT, false);
    if (freed->shared) {
        cuplug_cache_keep(cache, freed);
        mark = cuplug_fence_mark(&cache->fence);
        due = wait = cache->policy->free_waits && release->kind == CUPLUG_SYNC;
    } else if (idle && cuplug_fence_passed(&cache->fence, freed->mark)) {
        /* cudaFree of stream-ordered memory waits for nothing: the program has seen to its own use, and the use before that is over. */
        cuplug_heap_give(&cache->heap, &cache->ready, freed);
    } else if (release->kind == CUPLUG_ASYNC && (release->context == block->context || release->context->origin) &&
               (stream = cuplug_cache_stream_free(cache, freed, release))) {
        due = owe_in_stream(cache, &stream, size);
        mark = cuplug_fence_mark(stream ? &stream->fence : &cache->fence);
    } else {
        cuplug_cache_queue(cache, freed);
        mark = freed->mark;
        wait = must_wait(cache);
        due = cuplug_cache_owe(&cache->unrecorded, freed->size, wait || cuplug_cache_is(cache, CUPLUG_CACHE_TIGHT) || needed_soon(cache, freed->size));
    }
    untidy = release->kind == CUPLUG_SYNC && !idle && cuplug_cache_untidy(cache);
    cuplug_unlock(&cache->lock);
    if (due && stream) {
        record_stream(cache, stream, mark);
        cuplug_lock(&cache->lock);
        stream->pins--;
        cuplug_unlock(&cache->lock);
    } else if (due) {
        record(cache, &cache->fence, &cache->unrecorded, mark);
    }
    if (release->kind == CUPLUG_SYNC && !idle)
        cuplug_fence_allow(&cache->fence);
    else
        sweep_if_due(cache);
    if (wait && !cuplug_capturing() && still_must_wait(cache))
        cuplug_fence_host_wait(&cache->fence, UINT64_MAX);
    if (untidy)
        cuplug_cache_tidy(cache, block->context);
}

/* May the thread keep it? What cudaFree frees, of cudaMalloc's, and what is freed in the order of a stream of the memory's context, of stream-ordered memory. */
static bool keepable(const struct cuplug_cache *cache, const struct cuplug_block *block, const struct cuplug_release *release) {
    if (release->kind != block->kind)
        return false;
    return release->kind == CUPLUG_SYNC ? !cache->policy->free_waits : release->context == block->context;
}

CUresult cuplug_cache_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    struct cuplug_cache *cache = cuplug_cache_there(self, block->context);
    bool more;

    if (!cache)
        return CUDA_SUCCESS;
    if (!keepable(cache, block, release) || !cuplug_cache_thread_give(cache, block, release, &more)) {
        free_to_all(cache, block, release);
        return CUDA_SUCCESS;
    }
    if (release->kind == CUPLUG_ASYNC) {
        sweep_if_due(cache);
        return CUDA_SUCCESS;
    }
    cuplug_fence_allow(&cache->fence);
    if (more)
        spilled(cache, block->context);
    return CUDA_SUCCESS;
}
