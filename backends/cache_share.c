/*
 * cache_share.c: blocks that other processes may use. Nothing tells when they stop, so such a block is kept for some seconds after its free; a program
 * that frees what another has open does what CUDA leaves undefined, yet natively the other's data stays (measured).
 */
#include "cache.h"

#include <time.h>

static const time_t seconds = 5; /* at least; at most twice as long, if the program goes on freeing */

static time_t now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

bool cuplug_cache_share(void *self, struct cuplug_context *context, struct cuplug_heap_block *block) {
    struct cuplug_cache *cache = cuplug_cache_there(self, context);
    bool there;

    if (!cache)
        return false;
    cuplug_lock(&cache->lock);
    there = cache->context == context && !cuplug_context_gone(context);
    if (there)
        block->shared = true;
    cuplug_unlock(&cache->lock);
    /* The block may have been handed out behind a device wait, which orders no other process. */
    if (there)
        cuplug_fence_host_wait(&cache->fence, atomic_load(&cache->fence.waited));
    return there;
}

void cuplug_cache_keep(struct cuplug_cache *cache, struct cuplug_heap_block *block) {
    block->shared = false;
    block->state = CUPLUG_BLOCK_WAITING;
    if (!cache->kept[1].oldest)
        cache->kept_since = now();
    cuplug_queue_push(&cache->kept[1], block);
    cuplug_cache_close(cache, CUPLUG_CACHE_KEEPING, true);
}

/* Whoever frees next has to record for them. */
static void release(struct cuplug_cache *cache, struct cuplug_queue *queue) {
    struct cuplug_heap_block *block;

    while ((block = queue->oldest)) {
        cuplug_queue_drop(queue, block);
        cuplug_cache_queue(cache, block);
        cache->unrecorded.overdue = true;
    }
}

void cuplug_cache_release_kept(struct cuplug_cache *cache, bool all) {
    bool late;

    if (!cuplug_cache_is(cache, CUPLUG_CACHE_KEEPING))
        return;
    late = now() - cache->kept_since > seconds;
    if (all || late)
        release(cache, &cache->kept[0]);
    if (all) {
        release(cache, &cache->kept[1]);
    } else if (late) {
        cache->kept[0] = cache->kept[1];
        cache->kept[1] = (struct cuplug_queue){0};
        cache->kept_since = now();
    }
    cuplug_cache_close(cache, CUPLUG_CACHE_KEEPING, cache->kept[0].oldest || cache->kept[1].oldest);
}
