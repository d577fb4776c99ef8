/*
 * cache_reclaim.c: how freed blocks come back into use: by asking the driver, by waiting, and by giving whole segments back. Driver calls are made
 * without the cache's lock.
 */
#include "cache.h"

#include "heap_tree.h"
#include "shim/capture.h"
#include "shim/stats.h"

enum { STREAMS_AT_ONCE = 16, WEARY = 256 };

static void drain_stream(struct cuplug_cache *cache, struct cuplug_cache_stream *stream) {
    struct cuplug_heap_block *block;

    while ((block = stream->list.queue.oldest) && cuplug_cache_stream_passed(cache, stream, block)) {
        cuplug_heap_withdraw(block);
        if (cuplug_cache_stream_foreign(cache, stream)) /* its mark is another fence's, and its work is over */
            block->mark = 0;
        cuplug_heap_give(&cache->heap, &cache->ready, block);
    }
}

void cuplug_cache_drain(struct cuplug_cache *cache) {
    struct cuplug_heap_block *block;

    while ((block = cache->waiting.oldest) && cuplug_fence_passed(&cache->fence, block->mark)) {
        cuplug_queue_drop(&cache->waiting, block);
        cuplug_heap_give(&cache->heap, &cache->ready, block);
    }
    for (struct cuplug_cache_stream *stream = cache->streams; stream; stream = stream->next)
        if (stream->list.root)
            drain_stream(cache, stream);
}

/* A fence that tells about a stream's blocks, and the record that covers them. */
struct asked {
    struct cuplug_fence *fence;
    uint64_t number;
};

/* The stream's own fence; and its context's, if that is another and the stream was not recorded after the last of the blocks. Returns how many. The
 * lock is held. */
static int fences_of(const struct cuplug_cache *cache, struct cuplug_cache_stream *stream, struct asked *asked) {
    uint64_t recorded = atomic_load(&stream->fence.recorded);
    const struct cuplug_heap_block *last = stream->list.queue.newest;
    struct cuplug_cache *home = cuplug_cache_stream_home(cache, stream);

    asked[0] = (struct asked){&stream->fence, recorded};
    if (last->stream_mark < recorded || !home || !cuplug_cache_stream_foreign(cache, stream))
        return 1;
    asked[1] = (struct asked){&home->fence, last->mark + 1};
    return 2;
}

/* Calls `ask` for the fences of every stream that has blocks, without the lock. */
static void each_stream(struct cuplug_cache *cache, void (*ask)(struct cuplug_fence *fence, uint64_t number)) {
    struct asked asked[2 * STREAMS_AT_ONCE];
    struct cuplug_cache_stream *from;
    int count;

    cuplug_lock(&cache->lock);
    from = cache->streams;
    do {
        for (count = 0; from && count <= 2 * STREAMS_AT_ONCE - 2; from = from->next)
            if (from->list.root)
                count += fences_of(cache, from, asked + count);
        if (from)
            from->pins++; /* it stays in the list */
        cuplug_unlock(&cache->lock);
        for (int i = 0; i < count; i++)
            ask(asked[i].fence, asked[i].number);
        cuplug_lock(&cache->lock);
        if (from)
            from->pins--;
    } while (from);
    cuplug_unlock(&cache->lock);
}

static void poll(struct cuplug_fence *fence, uint64_t number) {
    (void)number;
    cuplug_fence_poll(fence);
}

static void wait(struct cuplug_fence *fence, uint64_t number) {
    if (atomic_load(&fence->recorded) >= number)
        cuplug_fence_host_wait(fence, number);
}

/* While anything captures, only a wait is possible. */
static bool record_whole(struct cuplug_fence *fence, uint64_t mark) {
    return cuplug_capturing() ? cuplug_fence_synchronise(fence) : cuplug_fence_record(fence, mark);
}

/* A stream that has ended, or is another thread's, cannot be recorded any more; its context can. */
static void record_home(struct cuplug_fence *fence, uint64_t number) {
    if (!atomic_load(&fence->stream))
        record_whole(fence, number - 1);
}

void cuplug_cache_poll(struct cuplug_cache *cache) {
    cuplug_fence_poll(&cache->fence);
    each_stream(cache, poll);
}

void cuplug_cache_wait(struct cuplug_cache *cache) {
    cuplug_fence_host_wait(&cache->fence, UINT64_MAX);
    each_stream(cache, wait);
}

/* Where captures are not seen, a record of a context may spoil one: only as the program's own cudaFree might have. */
bool cuplug_cache_record_all(struct cuplug_cache *cache) {
    const struct cuplug_cache_stream *stream;
    bool any;

    cuplug_lock(&cache->lock);
    any = cache->waiting.oldest != NULL;
    for (stream = cache->streams; stream && !any && cuplug_hooked; stream = stream->next)
        any = stream->list.root != NULL;
    cuplug_unlock(&cache->lock);
    if (!any)
        return false;
    if (cuplug_hooked)
        each_stream(cache, record_home);
    return record_whole(&cache->fence, cuplug_fence_mark(&cache->fence));
}

/* Is all work over that may have used this ready block? Not if the device merely waits for it; where it never was told to, all that is ready is. */
static bool over(const struct cuplug_cache *cache, const struct cuplug_heap_block *block) {
    return !atomic_load(&cache->fence.waited) || block->mark < atomic_load(&cache->fence.completed);
}

/* The smallest ready block that can be given back, or has a part that can. The lock is held. */
static struct cuplug_heap_block *spare(struct cuplug_cache *cache, struct cuplug_context *context, size_t most, time_t before, CUdeviceptr *base, size_t *bytes) {
    struct cuplug_heap_block *block = cuplug_tree_from(cache->ready.root, CUPLUG_CACHE_PAGE, 0);

    for (; block; block = cuplug_tree_from(cache->ready.root, block->size, block->address + 1)) {
        *bytes = over(cache, block) && (!before || block->since <= before) ? cache->policy->whole(context, block->address, block->size, most, base) : 0;
        if (*bytes)
            return block;
    }
    return NULL;
}

size_t cuplug_cache_cut_out(struct cuplug_cache *cache, struct cuplug_context *context, size_t most, time_t before, CUdeviceptr *base) {
    struct cuplug_heap_block *block;
    size_t bytes = 0;

    cuplug_lock(&cache->lock);
    block = cache->context == context ? spare(cache, context, most, before, base, &bytes) : NULL;
    if (!block || !cuplug_heap_cut_out(&cache->heap, block, *base, bytes))
        bytes = 0;
    cuplug_unlock(&cache->lock);
    return bytes;
}

/* Waits for all the work of the context, as cuMemFree does: after that nothing that is ready can be in use. */
static void finish(struct cuplug_cache *cache) {
    if (record_whole(&cache->fence, cuplug_fence_mark(&cache->fence)))
        cuplug_fence_host_wait(&cache->fence, UINT64_MAX);
}

/* The next that can go back to the driver. */
static bool next_spare(struct cuplug_cache *cache, struct cuplug_context *context, time_t before, CUdeviceptr *base, size_t *size) {
    uint64_t address;
    bool found;

    if (cache->policy->whole)
        return (*size = cuplug_cache_cut_out(cache, context, SIZE_MAX, before, base)) > 0;
    cuplug_lock(&cache->lock);
    found = cache->context == context && cuplug_heap_remove(&cache->heap, &cache->ready, before, &address, size);
    cuplug_unlock(&cache->lock);
    if (found)
        *base = address;
    return found;
}

void cuplug_cache_put_back(struct cuplug_cache *cache, struct cuplug_context *context, CUdeviceptr base, size_t size) {
    cuplug_lock(&cache->lock);
    if (cache->context == context)
        cuplug_heap_add(&cache->heap, &cache->ready, base, size);
    cuplug_unlock(&cache->lock);
}

size_t cuplug_cache_give_back(struct cuplug_cache *cache, struct cuplug_context *context, size_t enough, time_t before) {
    CUstreamCaptureMode mode;
    size_t given = 0, size;
    CUdeviceptr base;
    bool freed;

    if (atomic_load(&cache->fence.byte) && !cuplug_capturing()) /* then it may be all there is to wait by */
        cuplug_fence_synchronise(&cache->fence);
    if (cache->policy->whole && atomic_load(&cache->fence.waited))
        finish(cache);
    while (given < enough && cuplug_context_enter(context)) {
        if (!next_spare(cache, context, before, &base, &size)) {
            cuplug_context_leave(context);
            break;
        }
        mode = cuplug_capture_relax();
        freed = cuplug_context_answered(context, cuplug_cache_release(cache->policy, context, base, size)) == CUDA_SUCCESS;
        cuplug_capture_restore(mode);
        if (!freed)
            cuplug_cache_put_back(cache, context, base, size);
        cuplug_context_leave(context);
        if (!freed)
            break;
        given += size;
        CUPLUG_COUNT(cache->policy->backend, context->device, driver_frees, 1);
        cuplug_cache_segment_gone(cache->policy, context, size);
    }
    return given;
}

time_t cuplug_cache_now(void) {
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

/* Bytes in segments of which nothing was live for long, or (with `whole`) in large blocks that were free for long; *before: since when. Once a second, as it
 * walks along all of them. The lock is held. */
static size_t old(struct cuplug_cache *cache, time_t *before) {
    time_t now;
    size_t bytes = 0;

    if (!cache->policy->decay || (now = cuplug_cache_now()) == cache->looked)
        return 0;
    cache->looked = now;
    *before = now - (time_t)cache->policy->decay;
    for (const struct cuplug_segment *segment = cache->heap.segments; segment && !cache->policy->whole; segment = segment->next)
        if (!segment->live && segment->since <= *before)
            bytes += segment->size;
    if (cache->policy->whole)
        for (const struct cuplug_heap_block *block = cuplug_tree_from(cache->ready.root, CUPLUG_CACHE_PAGE, 0); block;
             block = cuplug_tree_from(cache->ready.root, block->size, block->address + 1))
            bytes += block->since <= *before ? block->size : 0;
    return bytes;
}

/* How much should go back now, for which of these reasons: more is idle than is to be kept; or it is old; or it is in pieces, and more than half of all is idle:
 * then it is taken again in one piece once it is needed, which happens once for a few times that it turned out to be scattered. The lock is held. */
static size_t too_much(struct cuplug_cache *cache, bool *again, time_t *before) {
    size_t idle = cache->heap.reserved - cache->live_bytes;

    *again = false;
    *before = 0;
    if (!cuplug_cache_untidy(cache))
        return 0;
    if (cache->weary) {
        cache->weary--;
        return 0;
    }
    if (idle > cache->keep)
        return idle - cache->keep;
    *again = cache->scattered >= CUPLUG_CACHE_SCATTERED && idle > cache->heap.reserved / 2;
    return *again ? SIZE_MAX : old(cache, before);
}

/* Blocks the host until all work of the context so far is over, and sorts out what that made free. */
static void settle(struct cuplug_cache *cache) {
    cuplug_fence_record(&cache->fence, cuplug_fence_mark(&cache->fence));
    cuplug_cache_wait(cache);
    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    cuplug_unlock(&cache->lock);
}

void cuplug_cache_tidy(struct cuplug_cache *cache, struct cuplug_context *context) {
    size_t bytes, given;
    time_t before;
    bool again;

    cuplug_lock(&cache->lock);
    bytes = cuplug_capturing() || cache->context != context ? 0 : too_much(cache, &again, &before);
    if (bytes)
        cache->weary = WEARY; /* nobody else meanwhile */
    cuplug_unlock(&cache->lock);
    if (!bytes)
        return;
    if (again)
        cuplug_cache_thread_collect(cache); /* a few small blocks hold on to many segments */
    settle(cache);
    given = cuplug_cache_give_back(cache, context, bytes, before);
    cuplug_lock(&cache->lock);
    if (given)
        cache->weary = 0;
    if (again) {
        cache->scattered = 0;
        cache->given_back += given;
    }
    cuplug_cache_thread_share(cache);
    cuplug_unlock(&cache->lock);
}

void cuplug_cache_look_after(struct cuplug_cache *cache, struct cuplug_context *context) {
    bool untidy;

    cuplug_lock(&cache->lock);
    untidy = cuplug_cache_untidy(cache);
    cuplug_unlock(&cache->lock);
    if (untidy)
        cuplug_cache_tidy(cache, context);
}
