/*
 * cache_reclaim.c: how freed blocks come back into use: by asking the driver, by waiting, and by giving whole segments back. Driver calls are made
 * without the cache's lock.
 */
#include "cache.h"

#include "shim/capture.h"
#include "shim/stats.h"

enum { STREAMS_AT_ONCE = 16 };

static void drain_stream(struct cuplug_cache *cache, struct cuplug_cache_stream *stream) {
    struct cuplug_heap_block *block;

    while ((block = stream->list.queue.oldest) && cuplug_cache_stream_passed(cache, stream, block)) {
        cuplug_heap_withdraw(block);
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

/* Calls `ask` for the fence of every stream that has blocks, without the lock. */
static void each_stream(struct cuplug_cache *cache, void (*ask)(struct cuplug_fence *fence)) {
    struct cuplug_cache_stream *found[STREAMS_AT_ONCE], *from;
    int count;

    cuplug_lock(&cache->lock);
    from = cache->streams;
    do {
        for (count = 0; from && count < STREAMS_AT_ONCE; from = from->next)
            if (from->list.root)
                found[count++] = from;
        if (from)
            from->pins++; /* it stays in the list */
        cuplug_unlock(&cache->lock);
        for (int i = 0; i < count; i++)
            ask(&found[i]->fence);
        cuplug_lock(&cache->lock);
        if (from)
            from->pins--;
    } while (from);
    cuplug_unlock(&cache->lock);
}

static void poll(struct cuplug_fence *fence) {
    cuplug_fence_poll(fence);
}

static void wait(struct cuplug_fence *fence) {
    cuplug_fence_host_wait(fence, UINT64_MAX);
}

void cuplug_cache_poll(struct cuplug_cache *cache) {
    cuplug_fence_poll(&cache->fence);
    each_stream(cache, poll);
}

void cuplug_cache_wait(struct cuplug_cache *cache) {
    wait(&cache->fence);
    each_stream(cache, wait);
}

/* The driver did not take it: it is ours still. */
static void keep(struct cuplug_cache *cache, struct cuplug_context *context, uint64_t base, size_t size) {
    cuplug_lock(&cache->lock);
    if (cache->context == context)
        cuplug_heap_add(&cache->heap, &cache->ready, base, size);
    cuplug_unlock(&cache->lock);
}

size_t cuplug_cache_give_back(struct cuplug_cache *cache, struct cuplug_context *context) {
    CUstreamCaptureMode mode;
    size_t given = 0, size;
    bool found, freed;
    uint64_t base;

    if (atomic_load(&cache->fence.byte))
        cuplug_fence_synchronise(&cache->fence);
    while (cuplug_context_enter(context)) {
        cuplug_lock(&cache->lock);
        found = cache->context == context && cuplug_heap_remove(&cache->heap, &cache->ready, &base, &size);
        cuplug_unlock(&cache->lock);
        if (!found) {
            cuplug_context_leave(context);
            break;
        }
        mode = cuplug_capture_relax();
        freed = cuplug_context_answered(context, cuplug_real.cuMemFree_v2(base)) == CUDA_SUCCESS;
        cuplug_capture_restore(mode);
        if (!freed)
            keep(cache, context, base, size);
        cuplug_context_leave(context);
        if (!freed)
            break;
        given += size;
        CUPLUG_COUNT(cache->policy->backend, context->device, driver_frees, 1);
        cuplug_cache_segment_gone(cache->policy, context, size);
    }
    return given;
}
