/*
 * cache_context.c: the caching engine where contexts are concerned as a whole: their caches come and go, and questions about a device or an address
 * go through all of them.
 */
#include "cache.h"

#include "heap_tree.h"

#include "shim/capture.h"
#include "shim/pages.h"
#include "shim/stats.h"

enum { LEAST_KEPT = 16 << 20 }; /* with less, threads keep nothing for themselves */

static struct cuplug_lock spare_lock;
static struct cuplug_cache *spares; /* of contexts that are gone */

static void put_aside(struct cuplug_cache *cache) {
    cuplug_lock(&spare_lock);
    cache->next = spares;
    spares = cache;
    cuplug_unlock(&spare_lock);
}

/* Idle memory that may stay. */
static size_t keep_of(const struct cuplug_policy *policy, CUdevice device) {
    size_t total = 0;

    if (policy->keeps || (policy->keep.percent && policy->keep.value >= 100))
        return SIZE_MAX;
    if (policy->keep.percent && cuplug_real.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return SIZE_MAX;
    return policy->keep.percent ? total / 100 * policy->keep.value : policy->keep.value;
}

struct cuplug_cache *cuplug_cache_of(const struct cuplug_policy *policy, struct cuplug_context *context) {
    struct cuplug_cache *cache = cuplug_cache_there(policy, context);
    void *none = NULL;
    size_t keep;

    if (cache)
        return cache;
    keep = keep_of(policy, context->device);
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
    cuplug_cache_close(cache, CUPLUG_CACHE_WAITS, policy->free_waits);
    atomic_store(&cache->ordered.now, 0);
    atomic_store(&cache->ordered.high, 0);
    cache->ordered_forgotten = false;
    cache->keep = keep;
    cuplug_cache_close(cache, CUPLUG_CACHE_SPARSE, cache->keep < LEAST_KEPT);
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

void cuplug_cache_apart(struct cuplug_cache *cache) {
    cuplug_lock(&cache->lock);
    cache->heap.joins = false;
    cuplug_unlock(&cache->lock);
}

/* What the functions below ask of every context. */
struct question {
    const struct cuplug_policy *policy;
    CUdevice device;
    const struct cuplug_context *except;
    CUdeviceptr pointer, *base; /* base: NULL if nobody wants to know */
    size_t bytes;
    struct cuplug_ordered ordered;
    struct cuplug_stats *stats;
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
    if (question->forget) {
        cache->ordered_forgotten |= atomic_load(&cache->ordered.high) > 0;
        atomic_store(&cache->ordered.high, atomic_load(&cache->ordered.now));
    }
    question->ordered.now += atomic_load(&cache->ordered.now);
    question->ordered.high += atomic_load(&cache->ordered.high);
    question->ordered.any |= cache->ordered_forgotten || atomic_load(&cache->ordered.high) > 0;
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

static void add_gauges(struct cuplug_context *context, void *arg) {
    struct question *question = arg;
    struct cuplug_cache *cache = cuplug_cache_there(question->policy, context);
    int64_t *value = question->stats->value, cached, pending;
    size_t largest;

    if (!cache || (question->device != -1 && context->device != question->device))
        return;
    cached = (int64_t)cuplug_cache_thread_bytes_soon(cache);
    if (!cuplug_lock_soon(&cache->lock))
        return;
    pending = (int64_t)(cache->waiting.bytes + cache->kept[0].bytes + cache->kept[1].bytes);
    for (const struct cuplug_cache_stream *stream = cache->streams; stream; stream = stream->next)
        pending += (int64_t)stream->list.queue.bytes;
    largest = cuplug_tree_largest(cache->ready.root);
    value[CUPLUG_STAT_idle_bytes] += (int64_t)(cache->heap.reserved - cache->live_bytes) + cached;
    cuplug_unlock(&cache->lock);
    value[CUPLUG_STAT_pending_bytes] += pending;
    value[CUPLUG_STAT_cached_bytes] += cached;
    if ((int64_t)largest > value[CUPLUG_STAT_largest_idle])
        value[CUPLUG_STAT_largest_idle] = (int64_t)largest;
}

void cuplug_cache_gauges(void *self, CUdevice device, struct cuplug_stats *stats) {
    struct question question = {.policy = self, .device = device, .stats = stats};

    cuplug_context_each(add_gauges, &question);
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
    question->bytes += cuplug_cache_give_back(cache, context, SIZE_MAX, 0);
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
    cache->live_bytes = cache->given_back = 0;
    cache->scattered = 0;
    cache->weary = cache->tight = 0;
    for (int why = CUPLUG_CACHE_KEEPING; why < CUPLUG_CACHE_WANTED; why *= 2)
        cuplug_cache_close(cache, why, false);
    cache->magazines = cache->ordered_magazines = 0;
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

size_t cuplug_cache_device_free(struct cuplug_context *context) {
    size_t free = 0, total = 0;

    if (cuplug_context_push(context)) {
        CUstreamCaptureMode mode = cuplug_capture_relax();

        cuplug_context_answered(context, cuplug_real.cuMemGetInfo_v2(&free, &total));
        cuplug_capture_restore(mode);
        cuplug_context_pop();
    }
    return free;
}
