/*
 * cache_stream.c: blocks freed by cudaFreeAsync. A stream may have its own blocks again at once, in its own order; others get them when an event
 * recorded on that stream is done. The context's records (made by cudaFree) cover them as well, so a stream that dies unrecorded strands nothing.
 */
#include "cache.h"


enum { MANY_STREAMS = 64 };

struct cuplug_cache_stream *cuplug_cache_stream_find(struct cuplug_cache *cache, uint64_t id) {
    struct cuplug_cache_stream *stream = cache->streams;

    while (stream && (stream->dead || stream->id != id))
        stream = stream->next;
    return stream;
}

/* An object that may serve another stream: a dead one without blocks, or any without blocks once there are many (a thread's default stream dies
 * with its thread, unseen). Its former stream just gets another object when it frees again. */
static struct cuplug_cache_stream *unused(struct cuplug_cache *cache) {
    struct cuplug_cache_stream *stream, *empty = NULL;
    int count = 0;

    for (stream = cache->streams; stream; stream = stream->next, count++) {
        if (stream->list.root || stream->pins)
            continue;
        if (stream->dead)
            return stream;
        empty = stream;
    }
    return count >= MANY_STREAMS ? empty : NULL;
}

struct cuplug_cache_stream *cuplug_cache_stream(struct cuplug_cache *cache, CUstream handle, uint64_t id) {
    struct cuplug_cache_stream *stream = cuplug_cache_stream_find(cache, id);

    if (stream)
        return stream;
    stream = unused(cache);
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
    cuplug_fence_init(&stream->fence, cache->context, handle, cache->policy->backend);
    stream->id = id;
    stream->unrecorded = (struct cuplug_debt){0};
    stream->dead = false;
    return stream;
}

struct cuplug_cache_stream *cuplug_cache_stream_free(struct cuplug_cache *cache, struct cuplug_heap_block *block, CUstream handle,
                                                     uint64_t id) {
    struct cuplug_cache_stream *stream = cuplug_cache_stream(cache, handle, id);

    if (!stream)
        return NULL;
    block->mark = cuplug_fence_mark(&cache->fence);
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
    stream = cuplug_cache_stream_find(cache, id);
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
