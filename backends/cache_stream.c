/*
 * cache_stream.c: blocks freed by cudaFreeAsync. A stream may have its own blocks again at once, in its own order; others get them when an event
 * recorded on that stream is done. The context's records (made by cudaFree) cover them as well, so a stream that dies unrecorded strands nothing.
 *
 * A stream of another context than the memory's is watched in the same way, by events of its own context, of the stream or as a whole. Its blocks
 * are nobody's before such an event, or the context, is done: each free on it records.
 */
#include "cache.h"


enum { MANY_STREAMS = 64 };

struct cuplug_cache_stream *cuplug_cache_stream_find(struct cuplug_cache *cache, const struct cuplug_context *context, uint64_t id) {
    struct cuplug_cache_stream *stream = cache->streams;

    while (stream && (stream->dead || stream->id != id || atomic_load_explicit(&stream->fence.context, memory_order_relaxed) != context))
        stream = stream->next;
    return stream;
}

bool cuplug_cache_stream_passed(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream, const struct cuplug_heap_block *block) {
    const struct cuplug_cache *home;

    if (cuplug_fence_passed(&stream->fence, block->stream_mark))
        return true;
    if (!cuplug_cache_stream_foreign(cache, stream))
        return cuplug_fence_passed(&cache->fence, block->mark);
    if (cuplug_context_gone(atomic_load_explicit(&stream->fence.context, memory_order_relaxed))) /* its end waits for its work */
        return true;
    home = cuplug_cache_stream_home(cache, stream);
    return home && cuplug_fence_passed(&home->fence, block->mark);
}

void cuplug_cache_stream_overdue(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream) {
    struct cuplug_cache *home = cuplug_cache_stream_home(cache, stream);

    if (!home)
        return;
    cuplug_lock(&home->lock);
    home->unrecorded.overdue = true;
    cuplug_unlock(&home->lock);
}

/* An object that may serve another stream: a dead one without blocks, or any without blocks once there are many (a thread's default stream dies
 * with its thread, unseen). Its former stream just gets another object when it frees again. */
static struct cuplug_cache_stream *unused(struct cuplug_cache *cache, const struct cuplug_context *context) {
    struct cuplug_cache_stream *stream, *empty = NULL;
    int count = 0;

    for (stream = cache->streams; stream; stream = stream->next, count++) {
        const struct cuplug_context *former = atomic_load_explicit(&stream->fence.context, memory_order_relaxed);

        if (stream->list.root || stream->pins || (former != context && !cuplug_context_gone(former))) /* its events are its context's */
            continue;
        if (former != context)
            cuplug_fence_forget(&stream->fence);
        if (stream->dead)
            return stream;
        empty = stream;
    }
    return count >= MANY_STREAMS ? empty : NULL;
}

/* The stream's object, made if need be; NULL without memory. The lock is held. */
static struct cuplug_cache_stream *stream_of(struct cuplug_cache *cache, struct cuplug_context *context, CUstream handle, uint64_t id) {
    struct cuplug_cache_stream *stream = cuplug_cache_stream_find(cache, context, id);

    if (stream)
        return stream;
    stream = unused(cache, context);
    if (!stream) {
        cache->stream_slab.object_size = sizeof *stream;
        stream = cuplug_slab_take(&cache->stream_slab);
        if (!stream)
            return NULL;
        stream->next = cache->streams;
        cache->streams = stream;
        stream->list.aged = true;
    }
    /* A reused fence keeps counting, so an answer about its former stream cannot pass for one about this. */
    cuplug_fence_init(&stream->fence, context, handle, cache->policy->backend);
    stream->id = id;
    cuplug_cache_forgive(&stream->unrecorded);
    stream->dead = false;
    return stream;
}

struct cuplug_cache_stream *cuplug_cache_stream_free(struct cuplug_cache *cache, struct cuplug_heap_block *block,
                                                     const struct cuplug_release *release) {
    struct cuplug_cache_stream *stream = stream_of(cache, release->context, release->stream, release->stream_id);
    struct cuplug_cache *home;

    if (!stream)
        return NULL;
    home = cuplug_cache_stream_home(cache, stream);
    block->mark = home ? cuplug_fence_mark(&home->fence) : UINT64_MAX; /* without memory for it, only the stream will tell */
    block->stream_mark = cuplug_fence_mark(&stream->fence);
    cuplug_heap_give(&cache->heap, &stream->list, block);
    return stream;
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
    /* Its work goes on after it is destroyed; this is the last chance to watch it alone. */
    if (record && !cuplug_fence_record(&stream->fence, cuplug_fence_mark(&stream->fence)))
        cuplug_cache_stream_overdue(cache, stream);
    if (!stream)
        return;
    cuplug_lock(&cache->lock);
    stream->pins--;
    stream->dead = true;
    cuplug_unlock(&cache->lock);
}
