/*
 * cache_context.c: the caching engine where contexts are concerned as a whole: their caches come and go, and questions about a device or an address
 * go through all of them.
 */
#include "cache.h"

#include "shim/pages.h"
#include "shim/stats.h"

static struct cuplug_lock spare_lock;
static struct cuplug_cache *spares; /* of contexts that are gone */

static void put_aside(struct cuplug_cache *cache) {
    cuplug_lock(&spare_lock);
    cache->next = spares;
    spares = cache;
    cuplug_unlock(&spare_lock);
}

struct cuplug_cache *cuplug_cache_of(const struct cuplug_policy *policy, struct cuplug_context *context) {
    struct cuplug_cache *cache = cuplug_cache_there(policy, context);
    void *none = NULL;

    if (cache)
        return cache;
    cuplug_lock(&spare_lock);
    cache = spares;
    if (cache)
        spares = cache->next;
    cuplug_unlock(&spare_lock);
    if (!cache)
        cache = cuplug_pages_map(sizeof *cache);
    if (!cache)
        return NULL;
    cuplug_lock(&cache->lock); /* a thread that frees into the former context may still look */
    cache->context = context;
    if (cache->policy != policy) /* it is read without the lock, too */
        cache->policy = policy;
    cache->ordered = (struct cuplug_ordered){0};
    cuplug_heap_init(&cache->heap);
    cache->heap.joins = policy->joins;
    cuplug_cache_thread_share(cache);
    cuplug_fence_init(&cache->fence, context, NULL, policy->backend);
    cuplug_unlock(&cache->lock);
    if (atomic_compare_exchange_strong(&context->cache[policy->backend], &none, cache))
        return cache;
    put_aside(cache);
    return none;
}

/* What the functions below ask of every context. */
struct question {
    const struct cuplug_policy *policy;
    CUdevice device;
    const struct cuplug_context *except;
    CUdeviceptr pointer, *base; /* base: NULL if nobody wants to know */
    size_t bytes;
    struct cuplug_ordered ordered;
    bool forget, found;
};

static void find(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);
    struct cuplug_segment *segment;

    if (!cache || question->found)
        return;
    cuplug_lock(&cache->lock);
    segment = cuplug_heap_segment_of(&cache->heap, question->pointer);
    question->found = segment != NULL;
    if (segment && question->base)
        *question->base = cuplug_heap_find(segment, question->pointer)->address;
    cuplug_unlock(&cache->lock);
}

bool cuplug_cache_find(void *self, CUdeviceptr pointer, CUdeviceptr *base) {
    struct question question = {.policy = self, .pointer = pointer, .base = base};

    cuplug_context_each(find, &question);
    return question.found;
}

int cuplug_cache_owns(void *self, CUdeviceptr pointer) {
    return cuplug_cache_find(self, pointer, NULL);
}

static void add_ordered(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);

    if (!cache || context->device != question->device)
        return;
    cuplug_lock(&cache->lock);
    if (question->forget)
        cache->ordered.high = cache->ordered.now;
    question->ordered.any |= cache->ordered.any;
    question->ordered.now += cache->ordered.now;
    question->ordered.high += cache->ordered.high;
    cuplug_unlock(&cache->lock);
}

void cuplug_cache_ordered(void *self, CUdevice device, bool forget, struct cuplug_ordered *ordered) {
    struct question question = {.policy = self, .device = device, .forget = forget};

    cuplug_context_each(add_ordered, &question);
    *ordered = question.ordered;
}

static void add_idle(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);

    if (!cache || context->device != question->device)
        return;
    question->bytes += cuplug_cache_thread_bytes(cache); /* first: what goes to everybody meanwhile counts twice rather than not at all */
    cuplug_lock(&cache->lock);
    question->bytes += cache->heap.reserved - cache->live_bytes;
    cuplug_unlock(&cache->lock);
}

size_t cuplug_cache_idle(const struct cuplug_policy *policy, struct cuplug_context *context) {
    struct question question = {.policy = policy, .device = context->device};

    if (policy->keeps)
        add_idle(context, &question);
    else
        cuplug_context_each(add_idle, &question);
    return question.bytes;
}

size_t cuplug_cache_available(void *self, struct cuplug_context *context, size_t free) {
    const struct cuplug_policy *policy = self;
    size_t room = policy->room ? policy->room(context) : free;

    return (room < free ? room : free) + cuplug_cache_idle(policy, context);
}

static void give_back(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);

    if (!cache || context->device != question->device)
        return;
    cuplug_lock(&cache->lock);
    cuplug_cache_release_kept(cache, true);
    cuplug_unlock(&cache->lock);
    cuplug_cache_thread_collect(cache);
    cuplug_fence_host_wait(&cache->fence, atomic_load(&cache->fence.allowed)); /* as its frees would have */
    cuplug_cache_poll(cache);
    cuplug_lock(&cache->lock);
    cuplug_cache_drain(cache);
    cuplug_unlock(&cache->lock);
    question->bytes += cuplug_cache_give_back(cache, context);
}

void cuplug_cache_give_back_all(const struct cuplug_policy *policy, CUdevice device) {
    struct question question = {.policy = policy, .device = device};

    cuplug_context_each(give_back, &question);
}

static void wait(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);

    if (cache && context->device == question->device)
        cuplug_cache_wait(cache);
}

static void record(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);

    if (!cache || context->device != question->device || context == question->except)
        return;
    cuplug_cache_thread_collect(cache);
    question->found |= cuplug_cache_record_all(cache);
}

bool cuplug_cache_record_others(const struct cuplug_policy *policy, struct cuplug_context *context) {
    struct question question = {.policy = policy, .device = context->device, .except = context};

    cuplug_context_each(record, &question);
    if (question.found)
        cuplug_context_each(wait, &question);
    return question.found;
}

size_t cuplug_cache_trim(void *self, CUdevice device, struct cuplug_context *context) {
    struct question question = {.policy = self, .device = device};

    (void)context;
    if (question.policy->keeps)
        return 0;
    cuplug_context_each(wait, &question);
    cuplug_context_each(give_back, &question);
    if (!question.bytes) { /* what no free recorded, only now: such a record also covers work submitted after the free */
        cuplug_context_each(record, &question);
        cuplug_context_each(wait, &question);
        cuplug_context_each(give_back, &question);
    }
    return question.bytes;
}

void cuplug_cache_segment_gone(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size) {
    CUPLUG_LEVEL(policy->backend, context->device, reserved_bytes, -(int64_t)size);
    if (policy->gone)
        policy->gone(context, size);
}

void cuplug_cache_context_shared(void *self, struct cuplug_context *context) {
    struct cuplug_cache *cache = cuplug_cache_there(self, context);

    /* Blocks already handed out behind a device wait are ordered in this context only: let that wait be over. A free recorded it, which natively
     * would have waited for as much. */
    if (cache)
        cuplug_fence_host_wait(&cache->fence, atomic_load(&cache->fence.waited));
}

void cuplug_cache_context_lost(void *self, struct cuplug_context *context) {
    const struct cuplug_policy *policy = self;
    struct cuplug_cache *cache = atomic_exchange(&context->cache[policy->backend], NULL);
    size_t reserved;

    if (!cache)
        return;
    cuplug_cache_thread_collect(cache); /* their descriptors are given away below */
    cuplug_lock(&cache->lock);
    reserved = cache->heap.reserved;
    cuplug_heap_clear(&cache->heap);
    cache->ready = (struct cuplug_list){0};
    cache->waiting = cache->kept[0] = cache->kept[1] = (struct cuplug_queue){0};
    cuplug_cache_forgive(&cache->unrecorded);
    cache->live_bytes = 0;
    cache->tight = cache->sparse = cache->keeping = false;
    cache->magazines = 0;
    cache->busy_streams = 0;
    for (struct cuplug_cache_stream *stream = cache->streams; stream; stream = stream->next) {
        stream->list = (struct cuplug_list){.aged = true};
        stream->dead = true;
        if (atomic_load_explicit(&stream->fence.context, memory_order_relaxed) == context)
            cuplug_fence_forget(&stream->fence);
    }
    cuplug_fence_forget(&cache->fence);
    cuplug_unlock(&cache->lock);
    cuplug_cache_segment_gone(policy, context, reserved);
    if (policy->lost)
        policy->lost(context);
    put_aside(cache);
}
