/*
 * cache_thread.c: small blocks that a thread freed and keeps, for its own next allocations: neither the cache's lock nor the heap is
 * needed then. The fence's protocol is the same as everywhere: each block carries the mark of its free, and is handed out once a record
 * above it has passed.
 *
 * A magazine belongs to one thread and serves one context at a time. Its lock is nearly always free: besides the thread only who needs
 * memory, counts what is idle, or sees the context end takes it. Blocks go between a magazine and the cache under both locks, so whoever
 * looks into one after the other finds them. Sizes come in classes, so that any block of a bin serves any request for it.
 *
 * All threads together keep about an eighth of what there is, or 32 MiB (not of an arena); each has an equal share, of 8 MiB at most.
 */
#include "cache.h"

#include "shim/live_table.h"
#include "shim/stats.h"
#include "shim/thread.h"

#define MIB ((size_t)1 << 20)

enum { BINS = 72, SMALL_UNITS = 2048 /* 1 MiB in units of 512 bytes */ };
enum { MOST_UNRECORDED = 64, LEAST_UNRECORDED = 8, MOST_PATIENCE = 64, MOST_AT_ONCE = 16 };

static const size_t most_share = 8 * MIB, least_in_all = 32 * MIB, least_due = MIB;
static const size_t bytes_at_once = 256 << 10;

/* The blocks of one size class, all linked by `newer`. */
struct bin {
    struct cuplug_heap_block *oldest, *newest; /* freed by the thread, in this order; newest: only if there are any */
    size_t freed;                              /* so many */
    struct cuplug_heap_block *stock;           /* taken along from everybody's ready ones; to be used first */
};

struct cuplug_magazine {
    struct cuplug_brief_lock lock;
    int backend;                    /* the cache's */
    struct cuplug_cache *cache;     /* these three are written by the thread, under the lock; NULL: it serves nobody */
    struct cuplug_context *context;
    size_t bytes;
    struct cuplug_debt unrecorded;
    uint64_t first_unrecorded;      /* the mark of the first of them */
    struct cuplug_magazine *next;   /* of the same thread */
    unsigned patience, asked;       /* allocations that do without asking the driver again; how many the last time */
    int hand;                       /* the bin that overflow() goes on with */
    struct bin bin[BINS] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

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

static inline void append(struct cuplug_magazine *magazine, struct bin *bin, struct cuplug_heap_block *block) {
    block->newer = NULL;
    if (bin->oldest)
        bin->newest->newer = block;
    else
        bin->oldest = block;
    bin->newest = block;
    bin->freed++;
    magazine->bytes += block->size;
}

static inline struct cuplug_heap_block *drop_oldest(struct cuplug_magazine *magazine, struct bin *bin) {
    struct cuplug_heap_block *block = bin->oldest;

    bin->oldest = block->newer;
    bin->freed--;
    magazine->bytes -= block->size;
    return block;
}

static inline struct cuplug_heap_block *drop_stock(struct cuplug_magazine *magazine, struct bin *bin) {
    struct cuplug_heap_block *block = bin->stock;

    bin->stock = block->newer;
    magazine->bytes -= block->size;
    return block;
}

/* The block that the bin's next allocation gets, if its work is over; else NULL. */
static inline struct cuplug_heap_block *next_of(const struct cuplug_magazine *magazine, const struct bin *bin) {
    struct cuplug_heap_block *oldest = bin->oldest;

    if (bin->stock)
        return bin->stock;
    return oldest && cuplug_fence_passed(&magazine->cache->fence, oldest->mark) ? oldest : NULL;
}

/* Takes that block out. */
static inline void drop_next(struct cuplug_magazine *magazine, struct bin *bin) {
    if (bin->stock) {
        drop_stock(magazine, bin);
        return;
    }
    drop_oldest(magazine, bin);
    magazine->asked = 0;
}

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

/* To everybody. What has passed is ready; what nobody recorded is owed by all. The cache's lock is held. */
static void release(struct cuplug_cache *cache, struct leaving *blocks) {
    struct cuplug_heap_block *block;

    while ((block = blocks->ready.oldest)) {
        cuplug_queue_drop(&blocks->ready, block);
        cuplug_cache_dies(cache, block);
        cuplug_heap_give(&cache->heap, &cache->ready, block);
    }
    while ((block = blocks->freed.oldest)) {
        cuplug_queue_drop(&blocks->freed, block);
        cuplug_cache_dies(cache, block);
        if (cuplug_fence_passed(&cache->fence, block->mark)) {
            cuplug_heap_give(&cache->heap, &cache->ready, block);
            continue;
        }
        block->state = CUPLUG_BLOCK_WAITING;
        cuplug_queue_push(&cache->waiting, block);
        if (block->mark >= atomic_load(&cache->fence.recorded) && cuplug_cache_owe(&cache->unrecorded, block->size, false))
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
        release(cache, blocks);
    cuplug_unlock(&cache->lock);
}

/* An arena is not to be filled with what nobody recorded: an allocation of another size could not even wait for it. */
void cuplug_cache_thread_share(struct cuplug_cache *cache) {
    size_t threads = cache->magazines ? cache->magazines : 1, all = cache->heap.reserved / 8, share, blocks = MOST_UNRECORDED;

    if (cache->policy->keeps)
        blocks = blocks / threads > LEAST_UNRECORDED ? blocks / threads : LEAST_UNRECORDED;
    else if (all < least_in_all)
        all = least_in_all;
    share = all / threads < most_share ? all / threads : most_share;
    atomic_store_explicit(&cache->share, share, memory_order_relaxed);
    atomic_store_explicit(&cache->most_unrecorded, (unsigned)blocks, memory_order_relaxed);
}

/* A magazine more, or less, serves the context. */
static void count_magazine(struct cuplug_cache *cache, const struct cuplug_context *context, bool more) {
    cuplug_lock(&cache->lock);
    if (cache->context == context && !cuplug_context_gone(context)) {
        cache->magazines += more ? 1 : -1;
        cuplug_cache_thread_share(cache);
    }
    cuplug_unlock(&cache->lock);
}

static struct cuplug_magazine *first_of(struct cuplug_kept *kept) {
    return atomic_load_explicit(&kept->magazines, memory_order_acquire);
}

/* The thread's next magazine that serves nobody, or whom no longer; a new one if need be. */
static struct cuplug_magazine *free_magazine(struct cuplug_kept *kept) {
    struct cuplug_magazine *magazine = first_of(kept);

    while (magazine && magazine->context && !cuplug_context_gone(magazine->context))
        magazine = magazine->next;
    if (magazine)
        return magazine;
    cuplug_lock(&slab_lock);
    magazine = cuplug_slab_take(&slab);
    cuplug_unlock(&slab_lock);
    if (magazine) {
        magazine->next = first_of(kept);
        atomic_store_explicit(&kept->magazines, magazine, memory_order_release);
    }
    return magazine;
}

/* Makes it serve this context. What it has are blocks of a context that ended: they are no more. */
static void bind(struct cuplug_magazine *magazine, struct cuplug_cache *cache, struct cuplug_context *context) {
    cuplug_brief_lock(&magazine->lock);
    magazine->cache = cache;
    magazine->backend = cache->policy->backend;
    magazine->context = context;
    for (int i = 0; i < BINS; i++)
        magazine->bin[i] = (struct bin){0};
    magazine->bytes = 0;
    magazine->patience = magazine->asked = 0;
    cuplug_cache_forgive(&magazine->unrecorded);
    cuplug_brief_unlock(&magazine->lock);
    count_magazine(cache, context, true);
}

static __attribute__((noinline)) struct cuplug_magazine *find_or_bind(struct cuplug_kept *kept, struct cuplug_cache *cache,
                                                                      struct cuplug_context *context) {
    struct cuplug_magazine *magazine = first_of(kept);

    while (magazine && (magazine->cache != cache || magazine->context != context))
        magazine = magazine->next;
    if (!magazine && (magazine = free_magazine(kept)))
        bind(magazine, cache, context);
    return magazine;
}

/* The thread's magazine for the context; NULL if it can have none. */
static inline struct cuplug_magazine *mine(struct cuplug_cache *cache, struct cuplug_context *context) {
    struct cuplug_kept *kept = cuplug_kept();
    struct cuplug_magazine *first = kept ? first_of(kept) : NULL;

    if (first && first->context == context && first->cache == cache)
        return first;
    return kept ? find_or_bind(kept, cache, context) : NULL;
}

/* Not where memory is short: then every free records, and everything is everybody's. Whoever collects for want of memory closes the cache
 * before and takes the lock of each magazine: what is asked under that lock is seen, or its outcome is found. */
static inline bool usable(const struct cuplug_cache *cache) {
    return !(atomic_load_explicit(&cache->closed, memory_order_relaxed) & ~(unsigned)CUPLUG_CACHE_KEEPING);
}

/* Has a free more to see to: a record that failed, or blocks that other processes used? */
static inline bool busy(const struct cuplug_cache *cache) {
    return atomic_load_explicit(&cache->closed, memory_order_relaxed) || atomic_load_explicit(&cache->unrecorded.overdue, memory_order_relaxed);
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

/* Counts a freed block; true if this free is to record. Not where another thread's record covers the first of them: then the rest can wait for the next
 * round, so that threads do not all record. Nor while one is on its way. The lock is held. */
static inline bool owe(struct cuplug_magazine *magazine, const struct cuplug_heap_block *freed, size_t share) {
    struct cuplug_debt *debt = &magazine->unrecorded;
    struct cuplug_fence *fence = &magazine->cache->fence;
    bool again = debt->overdue, covered;

    if (!debt->blocks)
        magazine->first_unrecorded = freed->mark;
    debt->bytes += freed->size;
    debt->blocks++;
    if (!again && debt->bytes < (share / 2 > least_due ? share / 2 : least_due) &&
        debt->blocks < atomic_load_explicit(&magazine->cache->most_unrecorded, memory_order_relaxed))
        return false;
    covered = !again && atomic_load_explicit(&fence->recorded, memory_order_relaxed) > magazine->first_unrecorded;
    if (!covered && atomic_load_explicit(&fence->recording, memory_order_relaxed))
        return false;
    cuplug_cache_forgive(debt);
    return !covered;
}

/* Puts a freed block into its bin. True if this free is to record. The lock is held. */
static inline bool put(struct cuplug_magazine *magazine, struct cuplug_heap_block *freed, size_t share) {
    freed->mark = cuplug_fence_mark_locked(&magazine->cache->fence);
    append(magazine, &magazine->bin[freed->class], freed);
    return owe(magazine, freed, share);
}

static void record(struct cuplug_magazine *magazine, struct cuplug_cache *cache, uint64_t mark) {
    if (cuplug_cache_record(&cache->fence, mark))
        return;
    cuplug_brief_lock(&magazine->lock);
    magazine->unrecorded.overdue = true;
    cuplug_brief_unlock(&magazine->lock);
}

bool cuplug_cache_thread_give(struct cuplug_cache *cache, const struct cuplug_block *block, bool *more) {
    struct cuplug_magazine *magazine = cuplug_cache_class(block->size) < 0 || busy(cache) ? NULL : mine(cache, block->context);
    struct cuplug_heap_block *freed = block->cookie; /* to be looked at only while its context is known to be there */
    size_t share = atomic_load_explicit(&cache->share, memory_order_relaxed);
    uint64_t mark;
    bool due;

    if (!magazine)
        return false;
    cuplug_brief_lock(&magazine->lock);
    if (!usable(cache) || cuplug_context_gone(block->context) || freed->shared || freed->class < 0) { /* gone: emptied, once and for all */
        cuplug_brief_unlock(&magazine->lock);
        return false;
    }
    due = put(magazine, freed, share);
    mark = freed->mark;
    *more = magazine->bytes > share;
    if (*more)
        overflow(magazine, share);
    cuplug_brief_unlock(&magazine->lock);
    if (due)
        record(magazine, cache, mark);
    return true;
}

/*
 * The common allocation and the common free, each in one go from the table to the magazine: nothing is built on the way, nobody else's lock is taken, and no
 * function called that is not compiled in. Whatever is not common goes the long way, which does the same in cuplug_core_alloc and cuplug_core_free.
 */

bool cuplug_backend_take_kept(int backend, struct cuplug_context *context, size_t size, CUdeviceptr *pointer) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? first_of(kept) : NULL;
    int class = cuplug_cache_class(size);
    struct cuplug_heap_block *block;
    struct cuplug_record *record;
    struct cuplug_shard *shard;
    CUdeviceptr address;
    struct bin *bin;

    if (!magazine || magazine->context != context || magazine->backend != backend || class < 0 || kept->next_number == kept->last_number)
        return false;
    cuplug_brief_lock(&magazine->lock);
    bin = &magazine->bin[class];
    block = next_of(magazine, bin);
    if (!block || !usable(magazine->cache))
        goto no;
    address = block->address;
    shard = cuplug_shard_of(address);
    cuplug_brief_lock(&shard->lock);
    record = cuplug_shard_place(shard, address);
    if (!record || record->backend != CUPLUG_LEFT) {
        cuplug_brief_unlock(&shard->lock);
        goto no;
    }
    drop_next(magazine, bin); /* before anybody can find the record, and free it */
    record->what = cuplug_record_what(size, CUPLUG_SYNC, backend);
    record->cookie = block;
    record->context = context;
    record->stream = 0;
    record->which = cuplug_record_which(kept->next_number++, context->device);
    shard->live++;
    cuplug_brief_unlock(&shard->lock);
    cuplug_brief_unlock(&magazine->lock);
    *pointer = address;
    if (cuplug_tally_is(&kept->tally, backend, context->device))
        cuplug_tally_allocated(&kept->tally, size);
    else
        cuplug_stats_allocated(backend, context->device, size);
    return true;
no:
    cuplug_brief_unlock(&magazine->lock);
    return false;
}

/* Has the long way to see to this allocation? `freed` is its block if it is the cache's. The locks of magazine and shard are held. */
static inline bool uncommon(const struct cuplug_magazine *magazine, const struct cuplug_record *record, const struct cuplug_heap_block *freed, size_t share) {
    return record->kind != CUPLUG_SYNC || record->context != magazine->context || (int)record->backend != magazine->backend || freed->shared ||
           freed->class < 0 || magazine->bytes + freed->size > share;
}

struct cuplug_context *cuplug_backend_keep_freed(CUdeviceptr pointer) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? first_of(kept) : NULL;
    struct cuplug_shard *shard = cuplug_shard_of(pointer);
    struct cuplug_context *context;
    struct cuplug_heap_block *freed;
    struct cuplug_record *entry;
    struct cuplug_cache *cache;
    int backend, device;
    size_t size, share;
    bool due;
    uint64_t mark;

    if (!magazine)
        return NULL;
    cuplug_brief_lock(&magazine->lock);
    cache = magazine->cache;
    context = magazine->context;
    if (!cache || busy(cache) || !cuplug_context_live(context) || cuplug_context_fault(context))
        goto no;
    share = atomic_load_explicit(&cache->share, memory_order_relaxed);
    cuplug_brief_lock(&shard->lock);
    entry = cuplug_shard_find(shard, pointer);
    freed = entry ? entry->cookie : NULL;
    if (!entry || uncommon(magazine, entry, freed, share)) {
        cuplug_brief_unlock(&shard->lock);
        goto no;
    }
    size = entry->size;
    backend = (int)entry->backend;
    device = (int)entry->device;
    cuplug_shard_take_out(shard, entry);
    cuplug_brief_unlock(&shard->lock);
    due = put(magazine, freed, share);
    mark = freed->mark;
    cuplug_brief_unlock(&magazine->lock);
    if (due)
        record(magazine, cache, mark);
    cuplug_fence_allow(&cache->fence);
    if (cuplug_tally_is(&kept->tally, backend, device))
        cuplug_tally_freed(&kept->tally, size);
    else
        cuplug_stats_freed(backend, device, size);
    return context;
no:
    cuplug_brief_unlock(&magazine->lock);
    return NULL;
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

void cuplug_cache_thread_ends(struct cuplug_kept *kept) {
    for (struct cuplug_magazine *magazine = first_of(kept); magazine; magazine = magazine->next) {
        struct cuplug_cache *cache = magazine->cache;
        struct cuplug_context *context = magazine->context;
        struct leaving out = {0};

        if (!cache)
            continue;
        cuplug_brief_lock(&magazine->lock);
        empty(magazine, &out);
        leave(magazine, &out);
        magazine->cache = NULL;
        magazine->context = NULL;
        cuplug_brief_unlock(&magazine->lock);
        count_magazine(cache, context, false);
    }
}
