/*
 * cache_thread.c: small blocks that a thread freed and keeps, for its own next allocations: neither the cache's lock nor the heap is
 * needed then. See magazine.h.
 *
 * A magazine's lock is nearly always free: besides the thread only who needs memory, counts what is idle, or sees the context or the stream end
 * takes it. Blocks go between a magazine and the cache under both locks, so whoever looks into one after the other finds them. Sizes come in
 * classes, so that any block of a bin serves any request for it.
 *
 * All threads together keep about an eighth of what there is, or 32 MiB (not of an arena); each has an equal share, of 8 MiB at most. In the order of streams they
 * keep as much again, in equal shares of at least 1 MiB.
 */
#include "magazine.h"

enum { MOST_UNRECORDED = 64, LEAST_UNRECORDED = 8, MOST_PATIENCE = 64, MOST_AT_ONCE = 16 };
enum { PERSISTENT = 256 }; /* frees in the order of a stream whose place another stream's magazine has, until it gets that */

static const size_t most_share = 8 * MIB, least_in_all = 32 * MIB, least_ordered = MIB;
static const size_t bytes_at_once = 256 << 10;

static struct cuplug_lock slab_lock;
static struct cuplug_slab slab = {.object_size = sizeof(struct cuplug_magazine)};

/* Eight classes for each doubling, from 4 KiB on; below, every multiple of 512. So at most an eighth is added. */
int cuplug_cache_class(size_t size) {
    size_t units = (size + CUPLUG_CACHE_GRAIN - 1) / CUPLUG_CACHE_GRAIN;
    int shift;

    if (units <= 8)
        return (int)units - 1;
    if (units > SMALL_UNITS)
        return -1;
    shift = 60 - __builtin_clzl(units - 1);
    return shift * 8 + (int)((units - 1) >> shift);
}

size_t cuplug_cache_class_size(int class) {
    int shift = class < 16 ? 0 : class / 8 - 1;

    return ((size_t)(class - shift * 8) + 1) * CUPLUG_CACHE_GRAIN << shift;
}

/* What leaves a magazine: freed and perhaps still in use, or ready. */
struct leaving {
    struct cuplug_queue freed, ready;
};

/* Takes everything out. The lock is held. */
static void empty(struct cuplug_magazine *magazine, struct leaving *out) {
    for (struct bin *bin = magazine->bin; magazine->bytes && bin < magazine->bin + BINS; bin++) {
        while (bin->oldest)
            cuplug_queue_push(&out->freed, drop_oldest(magazine, bin));
        while (bin->stock)
            cuplug_queue_push(&out->ready, drop_stock(magazine, bin));
    }
    cuplug_cache_forgive(&magazine->unrecorded);
}

/* To everybody. What has passed is ready; what nobody recorded is owed by all. What was freed in the order of a stream goes to that. The cache's lock is
 * held. */
static void release(struct cuplug_cache *cache, struct leaving *blocks, struct cuplug_cache_stream *stream) {
    struct cuplug_heap_block *block;

    while ((block = blocks->ready.oldest)) {
        cuplug_queue_drop(&blocks->ready, block);
        cuplug_cache_dies(cache, block);
        cuplug_heap_give(&cache->heap, &cache->ready, block);
    }
    while ((block = blocks->freed.oldest)) {
        const struct cuplug_fence *fence = stream ? &stream->fence : &cache->fence;
        uint64_t mark = stream ? block->stream_mark : block->mark;
        size_t size = block->size; /* it may merge */

        cuplug_queue_drop(&blocks->freed, block);
        cuplug_cache_dies(cache, block);
        if (stream ? cuplug_cache_stream_passed(cache, stream, block) : cuplug_fence_passed(fence, mark)) {
            cuplug_heap_give(&cache->heap, &cache->ready, block);
            continue;
        }
        if (stream) {
            cuplug_cache_stream_list(cache, stream, block);
        } else {
            block->state = CUPLUG_BLOCK_WAITING;
            cuplug_queue_push(&cache->waiting, block);
        }
        if (mark >= atomic_load(&fence->recorded) && cuplug_cache_owe(&cache->unrecorded, size, false))
            cache->unrecorded.overdue = true; /* the next free records, whoever's */
    }
}

/* The same; if the context has ended, its blocks are no more. The magazine's lock is held. */
static void leave(const struct cuplug_magazine *magazine, struct leaving *blocks) {
    struct cuplug_cache *cache = magazine->cache;

    if (!blocks->freed.oldest && !blocks->ready.oldest)
        return;
    cuplug_lock(&cache->lock);
    if (cache->context == magazine->context && !cuplug_context_gone(magazine->context))
        release(cache, blocks, magazine->stream);
    cuplug_unlock(&cache->lock);
}

static size_t equal_share(size_t all, size_t magazines) {
    size_t share = magazines ? all / magazines : all;

    return share < most_share ? share : most_share;
}

/* An arena is not to be filled with what nobody recorded: an allocation of another size could not even wait for it. What is kept in the order of streams, which may
 * be many, leaves as much for any; and a stream's is enough for its pairs. */
void cuplug_cache_thread_share(struct cuplug_cache *cache) {
    size_t both = cache->magazines + cache->ordered_magazines, all = cache->heap.reserved / 8, blocks = MOST_UNRECORDED, ordered;

    if (cache->policy->keeps)
        blocks = both && blocks / both > LEAST_UNRECORDED ? blocks / both : LEAST_UNRECORDED;
    else if (all < least_in_all)
        all = least_in_all;
    ordered = equal_share(all, cache->ordered_magazines);
    if (!cache->policy->keeps && ordered < least_ordered)
        ordered = least_ordered;
    atomic_store_explicit(&cache->share, equal_share(all, cache->magazines), memory_order_relaxed);
    atomic_store_explicit(&cache->ordered_share, ordered, memory_order_relaxed);
    atomic_store_explicit(&cache->most_unrecorded, (unsigned)blocks, memory_order_relaxed);
}

/* The magazine serves the context (and, pinned for it, the stream), or no longer. */
static void count_magazine(struct cuplug_magazine *magazine, struct cuplug_cache *cache, const struct cuplug_context *context, struct cuplug_cache_stream *stream,
                           bool more) {
    struct cuplug_magazine **link;

    cuplug_lock(&cache->lock);
    if (stream && more) {
        magazine->beside = stream->magazines;
        stream->magazines = magazine;
    } else if (stream) {
        for (link = &stream->magazines; *link != magazine;)
            link = &(*link)->beside;
        *link = magazine->beside;
        stream->pins--;
    }
    if (cache->context == context && !cuplug_context_gone(context)) {
        *(stream ? &cache->ordered_magazines : &cache->magazines) += more ? 1 : -1;
        cuplug_cache_thread_share(cache);
    }
    cuplug_unlock(&cache->lock);
}

/* Does it serve nobody, or whom no longer? */
static bool is_over(const struct cuplug_magazine *magazine) {
    return !magazine->context || cuplug_context_gone(magazine->context) || atomic_load_explicit(&magazine->over, memory_order_relaxed);
}

/* Where the thread looks for it. */
static struct cuplug_magazine **place_of(struct cuplug_kept *kept, const struct cuplug_magazine *magazine) {
    struct cuplug_magazine **place = &kept->plain;

    if (magazine->stream_id)
        place = place_in_order(kept, magazine->stream_id);
    return !magazine->stream_id || *place == magazine ? place : place_beside(kept, place);
}

/* It serves nobody any more; what it has goes to everybody, unless its context has ended. */
static void retire(struct cuplug_kept *kept, struct cuplug_magazine *magazine) {
    struct cuplug_cache *cache = magazine->cache;
    struct cuplug_context *context = magazine->context;
    struct cuplug_cache_stream *stream = magazine->stream;
    struct cuplug_magazine **place = place_of(kept, magazine);
    struct leaving out = {0};

    if (!cache)
        return;
    if (*place == magazine)
        *place = NULL;
    cuplug_brief_lock(&magazine->lock);
    empty(magazine, &out);
    leave(magazine, &out);
    magazine->cache = NULL;
    magazine->context = NULL;
    magazine->stream = NULL;
    magazine->stream_id = 0;
    cuplug_brief_unlock(&magazine->lock);
    count_magazine(magazine, cache, context, stream, false);
}

/* One of the thread's that serves nobody; a new one if need be. */
static struct cuplug_magazine *free_magazine(struct cuplug_kept *kept) {
    struct cuplug_magazine *magazine = first_of(kept);

    while (magazine && !is_over(magazine))
        magazine = magazine->next;
    if (magazine) {
        retire(kept, magazine);
        return magazine;
    }
    cuplug_lock(&slab_lock);
    magazine = cuplug_slab_take(&slab);
    cuplug_unlock(&slab_lock);
    if (magazine) {
        magazine->next = first_of(kept);
        atomic_store_explicit(&kept->magazines, magazine, memory_order_release);
    }
    return magazine;
}

/* Makes one that serves nobody serve this context, in the order of the stream if there is one. */
static void bind(struct cuplug_magazine *magazine, struct cuplug_cache *cache, struct cuplug_context *context, struct cuplug_cache_stream *stream) {
    cuplug_brief_lock(&magazine->lock);
    magazine->cache = cache;
    magazine->backend = cache->policy->backend;
    magazine->context = context;
    magazine->stream = stream;
    magazine->stream_id = stream ? stream->id : 0;
    atomic_store_explicit(&magazine->over, false, memory_order_relaxed);
    for (int i = 0; i < BINS; i++)
        magazine->bin[i] = (struct bin){0};
    magazine->bytes = 0;
    magazine->patience = magazine->asked = 0;
    cuplug_cache_forgive(&magazine->unrecorded);
    cuplug_brief_unlock(&magazine->lock);
    count_magazine(magazine, cache, context, stream, true);
}

static __attribute__((noinline)) struct cuplug_magazine *find_or_bind(struct cuplug_kept *kept, struct cuplug_cache *cache,
                                                                      struct cuplug_context *context) {
    struct cuplug_magazine *magazine = first_of(kept);

    while (magazine && (magazine->cache != cache || magazine->context != context || magazine->stream_id))
        magazine = magazine->next;
    if (!magazine && (magazine = free_magazine(kept)))
        bind(magazine, cache, context, NULL);
    if (magazine)
        kept->plain = magazine;
    return magazine;
}

/* The thread's magazine for the context; NULL if it can have none. */
static inline struct cuplug_magazine *mine(struct cuplug_cache *cache, struct cuplug_context *context) {
    struct cuplug_kept *kept = cuplug_kept();
    struct cuplug_magazine *plain = kept ? kept->plain : NULL;

    if (plain && plain->context == context && plain->cache == cache)
        return plain;
    return kept ? find_or_bind(kept, cache, context) : NULL;
}

/* Can others get at what it keeps? Not without records of whole contexts, nor where streams end or captures begin unseen. */
static bool keeps_in_order(const struct cuplug_release *release) {
    return cuplug_hooked && cuplug_fence_of_contexts() && release->stream_id;
}

/* An empty place for the stream's magazine. NULL while others have both, until it was asked for often. */
static struct cuplug_magazine **vacate(struct cuplug_kept *kept, uint64_t stream_id) {
    struct cuplug_magazine **place = place_in_order(kept, stream_id), **beside = place_beside(kept, place);

    if (*place && !is_over(*place) && (!*beside || is_over(*beside)))
        place = beside;
    if (*place && !is_over(*place) && ++kept->persistent % PERSISTENT)
        return NULL;
    if (*place)
        retire(kept, *place);
    return place;
}

/* The thread's magazine for the order of the stream; NULL if it can have none, or another stream's, which is in use, has its place. */
static struct cuplug_magazine *mine_in_order(struct cuplug_cache *cache, struct cuplug_context *context, const struct cuplug_release *release) {
    struct cuplug_kept *kept = keeps_in_order(release) ? cuplug_kept() : NULL;
    struct cuplug_magazine *magazine = kept ? in_order(kept, context, release->stream_id) : NULL, **place;
    struct cuplug_cache_stream *stream;

    if (magazine && magazine->cache == cache)
        return magazine;
    if (!kept || !(place = vacate(kept, release->stream_id)))
        return NULL;
    magazine = free_magazine(kept);
    stream = magazine ? cuplug_cache_stream_pin(cache, context, release) : NULL;
    if (!stream)
        return NULL;
    bind(magazine, cache, context, stream);
    return *place = magazine;
}

enum verdict { NOTHING, TAKEN, ASK };

/* A block of the bin whose work is over. ASK: the driver may know that the oldest one's is. The lock is held. */
static enum verdict look(struct cuplug_magazine *magazine, struct bin *bin, struct cuplug_heap_block **block) {
    struct cuplug_heap_block *oldest = bin->oldest;

    *block = next_of(magazine, bin);
    if (*block) {
        drop_next(magazine, bin);
        return TAKEN;
    }
    if (!oldest)
        return NOTHING;
    if (magazine->patience) {
        magazine->patience--;
        return NOTHING;
    }
    return atomic_load_explicit(&magazine->cache->fence.recorded, memory_order_relaxed) > oldest->mark ? ASK : NOTHING;
}

/* The device is still busy: each time twice as many allocations go on without asking. The lock is held. */
static void be_patient(struct cuplug_magazine *magazine) {
    magazine->asked = magazine->asked ? magazine->asked * 2 : 1;
    if (magazine->asked > MOST_PATIENCE)
        magazine->asked = MOST_PATIENCE;
    magazine->patience = magazine->asked;
}

static __attribute__((noinline)) struct cuplug_heap_block *ask_and_look(struct cuplug_magazine *magazine, struct bin *bin, CUdeviceptr *address) {
    struct cuplug_heap_block *block = NULL;

    cuplug_fence_poll(&magazine->cache->fence);
    cuplug_brief_lock(&magazine->lock);
    if (look(magazine, bin, &block) == TAKEN)
        *address = block->address;
    else
        be_patient(magazine);
    cuplug_brief_unlock(&magazine->lock);
    return block;
}

struct cuplug_heap_block *cuplug_cache_thread_take(struct cuplug_cache *cache, struct cuplug_context *context, int class, bool ask, CUdeviceptr *address) {
    struct cuplug_magazine *magazine = usable(cache) ? mine(cache, context) : NULL;
    struct cuplug_heap_block *block = NULL;
    enum verdict verdict;

    if (!magazine)
        return NULL;
    cuplug_brief_lock(&magazine->lock);
    verdict = look(magazine, &magazine->bin[class], &block);
    if (verdict == TAKEN)
        *address = block->address; /* here, as its descriptor is given away with a context that ends */
    cuplug_brief_unlock(&magazine->lock);
    return verdict == ASK && ask ? ask_and_look(magazine, &magazine->bin[class], address) : block;
}

/* None while it has some of its own, that only wait for the device. The lock is held. */
static size_t wants(const struct cuplug_magazine *magazine, int class) {
    size_t share = atomic_load_explicit(&magazine->cache->share, memory_order_relaxed), many;

    if (magazine->bin[class].stock || magazine->bin[class].oldest || magazine->bytes + bytes_at_once > share)
        return 0;
    many = bytes_at_once / cuplug_cache_class_size(class);
    return many > MOST_AT_ONCE ? MOST_AT_ONCE - 1 : many ? many - 1 : 0;
}

struct cuplug_magazine *cuplug_cache_thread_open(struct cuplug_cache *cache, struct cuplug_context *context, int class, size_t *many) {
    struct cuplug_magazine *magazine = class >= 0 && usable(cache) ? mine(cache, context) : NULL;

    *many = 0;
    if (!magazine)
        return NULL;
    cuplug_brief_lock(&magazine->lock);
    if (usable(cache) && !cuplug_context_gone(context))
        *many = wants(magazine, class);
    if (*many)
        return magazine;
    cuplug_brief_unlock(&magazine->lock);
    return NULL;
}

void cuplug_cache_thread_stock(struct cuplug_magazine *magazine, int class, const struct cuplug_queue *blocks) {
    magazine->bin[class].stock = blocks->oldest; /* linked by `newer` already; the lowest address first */
    magazine->bytes += blocks->bytes;
    cuplug_brief_unlock(&magazine->lock);
}

/* A sixteenth of the share goes to everybody: bin after bin, half of what was freed into each that is worth it, so that what is not used any more gets less
 * and less. The lock is held. */
static __attribute__((noinline)) void overflow(struct cuplug_magazine *magazine, size_t share) {
    struct leaving out = {0};

    for (int looks = 2 * BINS; looks && magazine->bytes > share - share / 16; looks--) {
        struct bin *bin = &magazine->bin[magazine->hand];
        size_t half = bin->freed / 2;

        if (looks > BINS && bin->freed * cuplug_cache_class_size(magazine->hand) < share / 32)
            half = bin->freed;
        while (bin->freed > half)
            cuplug_queue_push(&out.freed, drop_oldest(magazine, bin));
        magazine->hand = magazine->hand + 1 < BINS ? magazine->hand + 1 : 0;
    }
    leave(magazine, &out);
}

void cuplug_magazine_record(struct cuplug_magazine *magazine, struct cuplug_fence *fence, uint64_t mark) {
    if (!cuplug_cache_record(fence, mark)) {
        cuplug_brief_lock(&magazine->lock);
        magazine->unrecorded.overdue = true;
        cuplug_brief_unlock(&magazine->lock);
    }
    if (!magazine->stream_id)
        cuplug_cache_look_after(magazine->cache, magazine->context);
}

bool cuplug_cache_thread_give(struct cuplug_cache *cache, const struct cuplug_block *block, const struct cuplug_release *release, bool *more) {
    bool ordered = release->kind == CUPLUG_ASYNC;
    struct cuplug_magazine *magazine = NULL;
    struct cuplug_fence *fence;
    struct cuplug_heap_block *freed = block->cookie; /* to be looked at only while its context is known to be there */
    size_t share = share_of(cache, ordered);
    uint64_t mark;
    bool due;

    if (cuplug_cache_class(block->size) >= 0 && !busy(cache))
        magazine = ordered ? mine_in_order(cache, block->context, release) : mine(cache, block->context);
    if (!magazine)
        return false;
    cuplug_brief_lock(&magazine->lock);
    if (!usable(cache) || cuplug_context_gone(block->context) || freed->shared || freed->class < 0) { /* gone: emptied, once and for all */
        cuplug_brief_unlock(&magazine->lock);
        return false;
    }
    due = put(magazine, freed, ordered, share, &fence, &mark);
    if (ordered)
        cuplug_cache_ordered_less(cache, block->size);
    *more = magazine->bytes > share;
    if (*more)
        overflow(magazine, share);
    cuplug_brief_unlock(&magazine->lock);
    if (due)
        cuplug_magazine_record(magazine, fence, mark);
    return true;
}

/* Calls `visit` for each magazine of the cache, its lock held; with `soon`, but for those that stay locked for long. */
static void each(struct cuplug_cache *cache, bool soon, void (*visit)(struct cuplug_magazine *magazine, void *arg), void *arg) {
    for (struct cuplug_kept *kept = cuplug_kept_first(); kept; kept = kept->next)
        for (struct cuplug_magazine *magazine = first_of(kept); magazine; magazine = magazine->next) {
            if (!soon)
                cuplug_brief_lock(&magazine->lock);
            else if (!cuplug_brief_lock_soon(&magazine->lock))
                continue;
            if (magazine->cache == cache)
                visit(magazine, arg);
            cuplug_brief_unlock(&magazine->lock);
        }
}

static void collect(struct cuplug_magazine *magazine, void *unused) {
    struct leaving out = {0};

    (void)unused;
    empty(magazine, &out);
    leave(magazine, &out);
}

void cuplug_cache_thread_collect(struct cuplug_cache *cache) {
    each(cache, false, collect, NULL);
}

static void add_bytes(struct cuplug_magazine *magazine, void *arg) {
    *(size_t *)arg += magazine->bytes;
}

size_t cuplug_cache_thread_bytes(struct cuplug_cache *cache) {
    size_t bytes = 0;

    each(cache, false, add_bytes, &bytes);
    return bytes;
}

size_t cuplug_cache_thread_bytes_soon(struct cuplug_cache *cache) {
    size_t bytes = 0;

    each(cache, true, add_bytes, &bytes);
    return bytes;
}

static void end_stream(struct cuplug_magazine *magazine, void *stream) {
    if (magazine->stream != stream)
        return;
    collect(magazine, NULL);
    atomic_store_explicit(&magazine->over, true, memory_order_relaxed);
}

/* Few threads have one for it. A magazine's lock comes before the cache's; one that is retired meanwhile says so itself. */
void cuplug_cache_thread_stream_over(struct cuplug_cache *cache, const struct cuplug_cache_stream *stream) {
    enum { FEW = 16 };
    struct cuplug_magazine *few[FEW], *magazine;
    int count = 0;

    cuplug_lock(&cache->lock);
    for (magazine = stream->magazines; magazine && count < FEW; magazine = magazine->beside)
        few[count++] = magazine;
    cuplug_unlock(&cache->lock);
    if (magazine) {
        each(cache, false, end_stream, (void *)stream);
        return;
    }
    for (int i = 0; i < count; i++) {
        cuplug_brief_lock(&few[i]->lock);
        end_stream(few[i], (void *)stream);
        cuplug_brief_unlock(&few[i]->lock);
    }
}

void cuplug_cache_thread_ends(struct cuplug_kept *kept) {
    for (struct cuplug_magazine *magazine = first_of(kept); magazine; magazine = magazine->next)
        retire(kept, magazine);
}
