/*
 * cache_stream.c: blocks freed by cudaFreeAsync. A stream may have its own blocks again at once, in its own order; others get them when an event
 * recorded on that stream is done. The context's records (made by cudaFree) cover them as well, so a stream that dies unrecorded strands nothing.
 *
 * A stream of another context than the memory's is watched in the same way, by events of its own context, of the stream or as a whole. Its blocks
 * are nobody's before such an event, or the context, is done: each free on it records.
 */
#include "cache.h"

enum { MANY_STREAMS = 64, NEW_STREAM = 4, TRIES = 64 };

static const size_t least_followed = 64u << 20;

static struct cuplug_cache_stream **place_of(struct cuplug_cache *cache, uint64_t id) {
    return &cache->by_id[id % CUPLUG_CACHE_PLACES];
}

struct cuplug_cache_stream *cuplug_cache_stream_find(struct cuplug_cache *cache, const struct cuplug_context *context, uint64_t id) {
    struct cuplug_cache_stream *stream = *place_of(cache, id);

    while (stream && (stream->dead || stream->id != id || atomic_load_explicit(&stream->fence.context, memory_order_relaxed) != context))
        stream = stream->same;
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

/* An object that no stream uses any more, and whose events, which are its former context's, can be used; NULL if there is none. */
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

static bool crowded(const struct cuplug_cache *cache) {
    return cache->busy_streams >= MANY_STREAMS;
}

/* Time to look through the streams: once there are as many new ones as were still busy the last time, or four times as many frees
 * while many are. So it comes to about a query for each new stream, and to less than one for each free, however far the device is
 * behind. */
static void count_towards_sweep(struct cuplug_cache *cache, size_t by) {
    cache->unswept += by;
    if (cache->unswept < NEW_STREAM * (crowded(cache) ? cache->busy_streams : MANY_STREAMS))
        return;
    cache->unswept = 0;
    atomic_store_explicit(&cache->sweeping, true, memory_order_relaxed);
}

static __attribute__((noinline)) void note_free(struct cuplug_cache *cache, struct cuplug_cache_stream *stream) {
    stream->idle = false;
    stream->watched = crowded(cache);
    if (stream->watched)
        count_towards_sweep(cache, 1);
}

/* An object for a stream that has none; NULL without memory. The lock is held. */
static __attribute__((noinline)) struct cuplug_cache_stream *new_stream(struct cuplug_cache *cache, struct cuplug_context *context,
                                                                        CUstream handle, uint64_t id) {
    struct cuplug_cache_stream *stream = unused(cache, context);

    if (!stream) {
        cache->stream_slab.object_size = sizeof *stream;
        stream = cuplug_slab_take(&cache->stream_slab);
        if (!stream)
            return NULL;
        stream->list.aged = true;
    }
    stream->next = cache->streams;
    cache->streams = stream;
    stream->same = *place_of(cache, id);
    *place_of(cache, id) = stream;
    count_towards_sweep(cache, NEW_STREAM);
    /* A reused fence keeps counting, so an answer about its former stream cannot pass for one about this. */
    cuplug_fence_init(&stream->fence, context, handle, cache->policy->backend);
    stream->id = id;
    stream->follower = stream->asked_for = 0;
    cuplug_cache_forgive(&stream->unrecorded);
    stream->dead = stream->idle = false;
    stream->watched = crowded(cache);
    return stream;
}

void cuplug_cache_stream_list(struct cuplug_cache *cache, struct cuplug_cache_stream *stream, struct cuplug_heap_block *block) {
    if (stream->watched)
        note_free(cache, stream);
    cuplug_heap_give(&cache->heap, &stream->list, block);
}

/* The release's stream; NULL without memory. The lock is held. */
static struct cuplug_cache_stream *find_or_make(struct cuplug_cache *cache, struct cuplug_context *context, const struct cuplug_release *release) {
    struct cuplug_cache_stream *stream = cuplug_cache_stream_find(cache, context, release->stream_id);

    return stream ? stream : new_stream(cache, context, release->stream, release->stream_id);
}

struct cuplug_cache_stream *cuplug_cache_stream_free(struct cuplug_cache *cache, struct cuplug_heap_block *block,
                                                     const struct cuplug_release *release) {
    struct cuplug_cache_stream *stream = find_or_make(cache, release->context, release);
    struct cuplug_cache *home;

    if (!stream)
        return NULL;
    home = cuplug_cache_stream_home(cache, stream);
    block->mark = home ? cuplug_fence_mark_locked(&home->fence) : UINT64_MAX; /* without memory for it, only the stream will tell */
    block->stream_mark = cuplug_fence_mark_locked(&stream->fence);
    cuplug_cache_stream_list(cache, stream, block);
    return stream;
}

struct cuplug_cache_stream *cuplug_cache_stream_pin(struct cuplug_cache *cache, struct cuplug_context *context, const struct cuplug_release *release) {
    struct cuplug_cache_stream *stream = NULL;

    cuplug_lock(&cache->lock);
    if (cache->context == context && !cuplug_context_gone(context))
        stream = find_or_make(cache, context, release);
    if (stream)
        stream->pins++;
    cuplug_unlock(&cache->lock);
    return stream;
}

/* The oldest of the stream's blocks that has room and that a record covers. The lock is held. */
static struct cuplug_heap_block *recorded_block(const struct cuplug_cache_stream *stream, const struct cuplug_request *request) {
    uint64_t recorded = atomic_load(&stream->fence.recorded);
    struct cuplug_heap_block *block = stream->list.queue.oldest;

    for (int tries = 0; block && tries < TRIES && block->stream_mark < recorded; tries++, block = block->newer)
        if (cuplug_heap_has_room(block, request->size, request->alignment))
            return block;
    return NULL;
}

/* Of another stream of this context. *much: so many bytes wait for others that it is worth the order that it makes between the two. The lock is held. */
static struct cuplug_cache_stream *to_follow(struct cuplug_cache *cache, const struct cuplug_request *request, bool *much) {
    struct cuplug_cache_stream *found = NULL;
    size_t bytes = 0;

    for (struct cuplug_cache_stream *stream = cache->streams; stream; stream = stream->next) {
        if (stream->id == request->stream_id || cuplug_cache_stream_foreign(cache, stream))
            continue;
        bytes += stream->list.queue.bytes;
        if (!found && recorded_block(stream, request))
            found = stream;
    }
    *much = bytes > least_followed && bytes > cache->heap.reserved / 4;
    for (struct cuplug_cache_stream *stream = *much ? cache->streams : NULL; stream; stream = stream->next)
        if (stream->list.queue.bytes > least_followed / 4)
            stream->asked_for = MANY_STREAMS;
    return found;
}

/* Has the program left its device's pool free to make one stream wait for another? */
static bool may_depend(CUdevice device) {
    CUmemoryPool pool;
    int may = 1;

    if (cuplug_real.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS)
        cuplug_real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &may);
    return may;
}

/* The driver's own pools order streams so, too, if not before they are out of memory (cudaMemPoolReuseAllowInternalDependencies). What the other stream had
 * when the block was freed is all that is waited for, but for the work of it until the next record. */
struct cuplug_heap_block *cuplug_cache_stream_follow(struct cuplug_cache *cache, const struct cuplug_request *request) {
    struct cuplug_cache_stream *stream;
    struct cuplug_heap_block *block = NULL;
    uint64_t mark = 0, number;
    bool much;

    cuplug_lock(&cache->lock);
    stream = cache->context == request->context ? to_follow(cache, request, &much) : NULL;
    if (!stream || !much) {
        cuplug_unlock(&cache->lock);
        return NULL;
    }
    mark = recorded_block(stream, request)->stream_mark;
    number = stream->follower == request->stream_id && stream->followed > mark ? stream->followed : 0;
    stream->pins++;
    cuplug_unlock(&cache->lock);
    if (!may_depend(request->context->device))
        number = 0;
    else if (!number)
        number = cuplug_fence_order(&stream->fence, mark, request->stream);
    cuplug_lock(&cache->lock);
    stream->pins--;
    block = cache->context == request->context && number ? recorded_block(stream, request) : NULL;
    if (block && block->stream_mark < number)
        block = cuplug_heap_take_from(&cache->heap, block, request->size, request->alignment);
    else
        block = NULL;
    if (number) {
        stream->follower = request->stream_id;
        stream->followed = number;
    }
    if (block)
        cuplug_cache_lives(cache, block);
    cuplug_unlock(&cache->lock);
    return block;
}

static void unlist(struct cuplug_cache *cache, const struct cuplug_cache_stream *stream) {
    struct cuplug_cache_stream **link = place_of(cache, stream->id);

    while (*link != stream)
        link = &(*link)->same;
    *link = stream->same;
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
            unlist(cache, stream);
            stream->next = cache->unused_streams;
            cache->unused_streams = stream;
            continue;
        }
        stream->idle = !busy;
        stream->watched = true;
        cache->busy_streams += stream->list.root != NULL;
        link = &stream->next;
    }
}

void cuplug_cache_stream_sweep(struct cuplug_cache *cache) {
    if (!atomic_exchange_explicit(&cache->sweeping, false, memory_order_relaxed)) /* another thread does */
        return;
    cuplug_cache_poll(cache);
    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    sort_out(cache);
    cuplug_unlock(&cache->lock);
}

/* The one that is to be destroyed, of whichever context, as identities are the process's; where it cannot be asked for its identity (it captures), by its
 * handle. The lock is held. */
static struct cuplug_cache_stream *dying(struct cuplug_cache *cache, CUstream handle, uint64_t id) {
    struct cuplug_cache_stream *stream = id ? *place_of(cache, id) : cache->streams;

    while (stream && (stream->dead || (id ? stream->id != id : atomic_load_explicit(&stream->fence.stream, memory_order_relaxed) != handle)))
        stream = id ? stream->same : stream->next;
    return stream;
}

void cuplug_cache_stream_destroyed(void *self, struct cuplug_context *context, CUstream handle, uint64_t id) {
    struct cuplug_cache *cache = cuplug_cache_there(self, context);
    struct cuplug_cache_stream *stream;
    bool record, kept;

    if (!cache)
        return;
    cuplug_lock(&cache->lock);
    stream = dying(cache, handle, id);
    if (stream)
        stream->pins++;
    kept = stream && stream->magazines;
    for (struct cuplug_cache_stream *other = cuplug_real_has(cuStreamGetId) ? NULL : cache->streams; other; other = other->next)
        if (other->follower == id) /* the next stream may have this identity, which is its handle */
            other->follower = 0;
    cuplug_unlock(&cache->lock);
    if (!stream)
        return;
    if (kept)
        cuplug_cache_thread_stream_over(cache, stream);
    cuplug_lock(&cache->lock);
    record = stream->list.root && id;
    cuplug_unlock(&cache->lock);
    /* Its work goes on after it is destroyed; this is the last chance to watch it alone. */
    if (record && !cuplug_fence_record(&stream->fence, cuplug_fence_mark(&stream->fence)))
        cuplug_cache_stream_overdue(cache, stream);
    cuplug_lock(&cache->lock);
    stream->pins--;
    stream->dead = true;
    cuplug_unlock(&cache->lock);
}
