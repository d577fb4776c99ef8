/*
 * cache_stream.c: blocks freed by cudaFreeAsync. A stream may have its own blocks again at once, in its own order; others get them when an event
 * recorded on that stream is done. The context's records (made by cudaFree) cover them as well, so a stream that dies unrecorded strands nothing.
 *
 * A stream of another context than the memory's is watched in the same way, by events of its own context. Its blocks are nobody's before such an
 * event, or the context, is done: each free on it records.
 */
#include "cache.h"


enum { MANY_STREAMS = 64, NEW_STREAM = 4 };

struct cuplug_cache_stream *cuplug_cache_stream_find(struct cuplug_cache *cache, const struct cuplug_context *context, uint64_t id) {
    struct cuplug_cache_stream *stream = cache->streams;

    while (stream && (stream->dead || stream->id != id || atomic_load_explicit(&stream->fence.context, memory_order_relaxed) != context))
        stream = stream->next;
    return stream;
}

bool cuplug_cache_stream_passed(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream, const struct cuplug_heap_block *block) {
    if (cuplug_fence_passed(&stream->fence, block->stream_mark))
        return true;
    if (cuplug_cache_stream_foreign(cache, stream)) /* a context's end waits for its work */
        return cuplug_context_gone(atomic_load_explicit(&stream->fence.context, memory_order_relaxed));
    return cuplug_fence_passed(&cache->fence, block->mark);
}

/* An object that no stream uses any more; NULL if there is none. Its events are its former context's. The lock is held. */
static struct cuplug_cache_stream *unused(struct cuplug_cache *cache, const struct cuplug_context *context) {
    struct cuplug_cache_stream **link = &cache->unused_streams, *stream;

    for (; (stream = *link); link = &stream->next) {
        const struct cuplug_context *former = atomic_load_explicit(&stream->fence.context, memory_order_relaxed);

        if (former != context && !cuplug_context_gone(former))
            continue;
        if (former != context)
            cuplug_fence_forget(&stream->fence);
        *link = stream->next;
        return stream;
    }
    return NULL;
}

/* The stream's object, made if need be; NULL without memory. The lock is held. */
static struct cuplug_cache_stream *stream_of(struct cuplug_cache *cache, struct cuplug_context *context, CUstream handle, uint64_t id) {
    struct cuplug_cache_stream *stream = cuplug_cache_stream_find(cache, context, id);

    if (stream) {
        stream->idle = false;
        cache->unswept += cache->busy_streams >= MANY_STREAMS;
        return stream;
    }
    stream = unused(cache, context);
    if (!stream) {
        cache->stream_slab.object_size = sizeof *stream;
        stream = cuplug_slab_take(&cache->stream_slab);
        if (!stream)
            return NULL;
        stream->list.aged = true;
    }
    stream->next = cache->streams;
    cache->streams = stream;
    cache->unswept += NEW_STREAM;
    /* A reused fence keeps counting, so an answer about its former stream cannot pass for one about this. */
    cuplug_fence_init(&stream->fence, context, handle, cache->policy->backend);
    stream->id = id;
    cuplug_cache_forgive(&stream->unrecorded);
    stream->dead = stream->idle = false;
    return stream;
}

struct cuplug_cache_stream *cuplug_cache_stream_free(struct cuplug_cache *cache, struct cuplug_heap_block *block,
                                                     const struct cuplug_release *release) {
    struct cuplug_cache_stream *stream = stream_of(cache, release->context, release->stream, release->stream_id);

    if (!stream)
        return NULL;
    block->mark = cuplug_fence_mark(&cache->fence);
    block->stream_mark = cuplug_fence_mark(&stream->fence);
    cuplug_heap_give(&cache->heap, &stream->list, block);
    return stream;
}

/* As many new streams as are still busy, or four times as many frees: so it comes to about a query for each new stream, and to less
 * than one for each free, however far the device is behind. */
bool cuplug_cache_stream_many(struct cuplug_cache *cache) {
    size_t many = cache->busy_streams > MANY_STREAMS ? cache->busy_streams : MANY_STREAMS;

    if (cache->unswept < NEW_STREAM * many)
        return false;
    cache->unswept = 0;
    return true;
}

/* Sorts out the streams without blocks that are dead, or that were idle the last time, too: a thread's default stream dies with its
 * thread, unseen. If one of these frees again, it just gets another object. The lock is held. */
static void sort_out(struct cuplug_cache *cache) {
    struct cuplug_cache_stream **link = &cache->streams, *stream;

    cache->busy_streams = 0;
    while ((stream = *link)) {
        bool busy = stream->list.root || stream->pins;

        if (!busy && (stream->dead || stream->idle)) {
            *link = stream->next;
            stream->next = cache->unused_streams;
            cache->unused_streams = stream;
            continue;
        }
        stream->idle = !busy;
        cache->busy_streams += busy;
        link = &stream->next;
    }
}

void cuplug_cache_stream_sweep(struct cuplug_cache *cache) {
    cuplug_cache_poll(cache);
    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    sort_out(cache);
    cuplug_unlock(&cache->lock);
}

void cuplug_cache_stream_destroyed(void *self, struct cuplug_context *context, CUstream handle, uint64_t id) {
    struct cuplug_cache *cache = cuplug_cache_there(self, context);
    struct cuplug_cache_stream *stream;
    bool record;

    (void)handle;
    if (!cache)
        return;
    cuplug_lock(&cache->lock);
    for (stream = cache->streams; stream && (stream->dead || stream->id != id);) /* of whichever context: such ids are the process's */
        stream = stream->next;
    record = stream && stream->list.root;
    if (stream)
        stream->pins++;
    cuplug_unlock(&cache->lock);
    if (record) /* its work goes on after it is destroyed; this is the last chance to watch it */
        cuplug_fence_record(&stream->fence, cuplug_fence_mark(&stream->fence));
    if (!stream)
        return;
    cuplug_lock(&cache->lock);
    stream->pins--;
    stream->dead = true;
    cuplug_unlock(&cache->lock);
}
