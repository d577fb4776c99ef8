/*
 * magazine.h: what one thread keeps for its next allocations, and how a block gets in and out; between cache_thread.c, where magazines come and go, and
 * cache_fast.c, the common allocation and free.
 *
 * A magazine belongs to one thread and serves one context at a time: for any stream, as cudaMalloc and cudaFree have it, or in the order of one stream. In the
 * first, each block carries the mark of its free and is handed out once a record above it has passed, as everywhere. In the second it may be handed out at
 * once: the next work that the thread gives to the stream comes after all that the block was freed behind.
 */
#ifndef CUPLUG_MAGAZINE_H
#define CUPLUG_MAGAZINE_H

#include "cache.h"

#include "shim/thread.h"

#define MIB ((size_t)1 << 20)
#define MAGAZINE_INLINE static inline __attribute__((always_inline)) /* in each of the two common ways */

enum { BINS = 72, SMALL_UNITS = 2048 /* 1 MiB in units of 512 bytes */, LEAST_DUE = MIB, MOST_DUE = 16 * MIB };

/* The blocks of one size class, all linked by `newer`. */
struct bin {
    struct cuplug_heap_block *oldest, *newest; /* freed by the thread, in this order; newest: only if there are any */
    size_t freed;                              /* so many */
    struct cuplug_heap_block *stock;           /* taken along from everybody's ready ones; to be used first */
};

struct cuplug_magazine {
    struct cuplug_brief_lock lock;
    _Atomic bool over;              /* its stream is destroyed */
    int backend;                    /* the cache's */
    struct cuplug_cache *cache;     /* these are written by the thread, under the lock; NULL: it serves nobody */
    struct cuplug_context *context;
    size_t bytes;
    struct cuplug_debt unrecorded;
    uint64_t stream_id;             /* 0: any stream; else … */
    struct cuplug_cache_stream *stream; /* … the one, pinned, that goes with it */
    uint64_t first_unrecorded;      /* the mark of the first of them */
    struct cuplug_magazine *next;   /* of the same thread */
    struct cuplug_magazine *beside; /* in the order of the same stream; under the cache's lock */
    unsigned patience, asked;       /* allocations that do without asking the driver again; how many the last time */
    int hand;                       /* the bin that overflow() goes on with */
    struct bin bin[BINS] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

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

/* Without a stream's order: the block that the bin's next allocation gets, if its work is over; else NULL. */
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

/* Not where memory is short: then every free records, and everything is everybody's. Whoever collects for want of memory closes the cache
 * before and takes the lock of each magazine: what is asked under that lock is seen, or its outcome is found. */
static inline bool usable(const struct cuplug_cache *cache) {
    return !(atomic_load_explicit(&cache->closed, memory_order_relaxed) & ~(unsigned)CUPLUG_CACHE_KEEPING);
}

/* Has a free more to see to: a record that failed, or blocks that other processes used? */
static inline bool busy(const struct cuplug_cache *cache) {
    return atomic_load_explicit(&cache->closed, memory_order_relaxed) || atomic_load_explicit(&cache->unrecorded.overdue, memory_order_relaxed);
}

/* Counts a freed block; true if this free is to record. Not where another thread's record covers the first of them: then the rest can wait for the next
 * round, so that threads do not all record. Nor while one is on its way. The lock is held. */
MAGAZINE_INLINE bool owe(struct cuplug_magazine *magazine, bool ordered, const struct cuplug_fence *fence, uint64_t mark, size_t size, size_t share) {
    struct cuplug_debt *debt = &magazine->unrecorded;
    bool again = debt->overdue, covered;
    size_t due = ordered ? MOST_DUE : share / 2 > LEAST_DUE ? share / 2 : LEAST_DUE;

    if (!debt->blocks)
        magazine->first_unrecorded = mark;
    debt->bytes += size;
    debt->blocks++;
    if (!again && debt->bytes < due &&
        debt->blocks < atomic_load_explicit(&magazine->cache->most_unrecorded, memory_order_relaxed))
        return false;
    covered = !again && atomic_load_explicit(&fence->recorded, memory_order_relaxed) > magazine->first_unrecorded;
    if (!covered && atomic_load_explicit(&fence->recording, memory_order_relaxed))
        return false;
    cuplug_cache_forgive(debt);
    return !covered;
}

/* Puts a freed block into its bin, with its marks. True if this free is to record the fence above the mark: the context's, or that of the one stream, which
 * itself gets its blocks without. The lock is held. */
MAGAZINE_INLINE bool put(struct cuplug_magazine *magazine, struct cuplug_heap_block *freed, bool ordered, size_t share, struct cuplug_fence **fence, uint64_t *mark) {
    *fence = ordered ? &magazine->stream->fence : &magazine->cache->fence;
    *mark = cuplug_fence_mark_locked(*fence);
    freed->mark = ordered ? cuplug_fence_mark_locked(&magazine->cache->fence) : *mark;
    if (ordered)
        freed->stream_mark = *mark;
    append(magazine, &magazine->bin[freed->class], freed);
    return owe(magazine, ordered, *fence, *mark, freed->size, share);
}

/* Records in a free of the thread, which put() asked for; if that fails, another free does. A cudaFree then sees to what is idle, too. */
void cuplug_magazine_record(struct cuplug_magazine *magazine, struct cuplug_fence *fence, uint64_t mark);

/* Where the magazine for this stream is, or may be: here or in the place beside it. */
static inline struct cuplug_magazine **place_in_order(struct cuplug_kept *kept, uint64_t stream_id) {
    return &kept->ordered[stream_id * 0x9e3779b97f4a7c15u >> (64 - CUPLUG_ORDERED_BITS)];
}

static inline struct cuplug_magazine **place_beside(struct cuplug_kept *kept, struct cuplug_magazine **place) {
    return &kept->ordered[(place - kept->ordered) ^ 1];
}

/* Two contexts' default streams have the same identity. */
static inline bool serves(const struct cuplug_magazine *magazine, const struct cuplug_context *context, uint64_t stream_id) {
    return magazine && magazine->stream_id == stream_id && magazine->context == context;
}

/* The thread's magazine in the order of this stream, NULL if it has none. */
static inline struct cuplug_magazine *in_order(struct cuplug_kept *kept, const struct cuplug_context *context, uint64_t stream_id) {
    struct cuplug_magazine **place = place_in_order(kept, stream_id);

    if (!serves(*place, context, stream_id))
        place = place_beside(kept, place);
    return serves(*place, context, stream_id) ? *place : NULL;
}

/* How much it may keep. */
static inline size_t share_of(const struct cuplug_cache *cache, bool ordered) {
    return atomic_load_explicit(ordered ? &cache->ordered_share : &cache->share, memory_order_relaxed);
}

static inline struct cuplug_magazine *first_of(struct cuplug_kept *kept) {
    return atomic_load_explicit(&kept->magazines, memory_order_acquire);
}

#endif
