/*
 * cache.h: the engine under pool, arena and managed: per context, segments from the driver, sub-allocated (heap.h) and reused under the fence
 * protocol of shim/fence.h. A free never waits for the device, an allocation never records and never blocks the host, except when memory is out.
 *
 * Where a block is: live; waiting (freed, its old work may still run); in a stream's list (freed in that stream's order); ready. An allocation
 * takes, in this order, the stream's own; a ready one; one that turns out to be done; new memory while little is waiting; one that the device is
 * told to wait for; new memory.
 *
 * Files: cache.c (allocation and free), cache_fast.c (the common ones), cache_thread.c (what threads keep for themselves), cache_stream.c (stream-ordered blocks), cache_reclaim.c
 * (asking, waiting, giving back), cache_share.c (blocks that other processes may use), cache_context.c (what concerns contexts as a whole).
 */
#ifndef CUPLUG_CACHE_H
#define CUPLUG_CACHE_H

#include "config/value.h"
#include "shim/context.h"
#include "shim/fence.h"
#include "shim/lock.h"
#include "shim/stats.h"

#include "cuplug_backend.h"
#include "heap.h"
#include "registry.h"

#include <time.h>

#define CUPLUG_CACHE_SLACK {.percent = true, .value = 3} /* where no option says more */
#define CUPLUG_CACHE_GRAIN ((size_t)512)      /* the driver's own spacing */
#define CUPLUG_CACHE_PAGE ((size_t)2 << 20)   /* what the driver hands out device memory in */

/* In which a backend of this kind differs from the others. */
struct cuplug_policy {
    int backend; /* its number: the slot in a context, and whose statistics count */
    /* Memory for a segment, from the driver in the current context. Errors are the driver's. */
    CUresult (*segment)(struct cuplug_context *context, size_t size, CUdeviceptr *base);
    /* May the context have so many bytes more? They count as its own until `gone`. For a `segment` that only then knows what it needs. NULL: it may. */
    bool (*charge)(struct cuplug_context *context, size_t size);
    /* How large the next segment should be if `least` bytes are needed and `reserved` are there; 0: no more. Whole pages, unless `keeps`. */
    size_t (*step)(struct cuplug_context *context, size_t reserved, size_t least);
    /* Bytes that segments of the context may yet take; NULL: what the device has free. */
    size_t (*room)(struct cuplug_context *context);
    /* The reverse, of a segment or (with `whole`) of what that said; NULL: cuMemFree, which waits for the device. */
    CUresult (*release)(struct cuplug_context *context, CUdeviceptr base, size_t size);
    /* What of this free memory can be given back by itself: bytes from *base on that lie together, at most so many; 0 if nothing can. NULL: a segment can, as a
     * whole. The cache is locked. */
    size_t (*whole)(struct cuplug_context *context, CUdeviceptr address, size_t size, size_t most, CUdeviceptr *base);
    /* The context is gone; what was taken for it need not be. May be NULL. */
    void (*lost)(struct cuplug_context *context);
    /* A segment went back to the driver, or away with its context. May be NULL. */
    void (*gone)(struct cuplug_context *context, size_t size);
    bool completed_only;       /* never hand out what the device only waits for */
    bool free_waits;           /* cudaFree blocks until the earlier work is done */
    bool patient;              /* rather wait on the device than grow, however little is waiting */
    bool joins;                /* segments that lie next to each other are one */
    bool keeps;                /* one segment, reserved once and never given back */
    struct cuplug_amount keep; /* of the device: idle memory above it is given back in frees; 100 %: none is */
    uint64_t decay;            /* a segment of which nothing was live for so many seconds is given back; 0: never */
    struct cuplug_amount slack; /* freed memory that may wait for the device before the device is told to wait, of what is reserved, 8 MiB at least */
};

/* What was freed since the last record. Whoever finds it due settles it, and makes it overdue again if its record fails. */
struct cuplug_debt {
    size_t bytes, blocks;
    _Atomic bool overdue; /* the rest is its owner's; this is looked at without the lock, too */
};

/* Blocks freed in the order of one stream, which may be another context's; never freed itself, used again once its blocks have gone on
 * and the stream is dead, or frees no more. */
struct cuplug_cache_stream {
    struct cuplug_cache_stream *next; /* of those in use, or of those to be used again */
    struct cuplug_cache_stream *same; /* in use: of those in the same place of `by_id` */
    struct cuplug_magazine *magazines; /* what threads keep in its order (magazine.h); each pins it */
    uint64_t id;
    struct cuplug_list list; /* handed out at once to the same stream, to others once the fence has passed */
    struct cuplug_fence fence;
    struct cuplug_debt unrecorded;
    int pins; /* records on their way, for which it must stay this stream's, and walks that go on from it */
    unsigned asked_for; /* so many frees record each: another stream looked for its blocks, and the newest ones kept their neighbours back */
    uint64_t follower, followed; /* the stream that waits for its records up to this number; one at a time, as it is only to save calls */
    bool dead;
    bool idle;    /* it had no blocks when the streams were last looked through, and has not freed since */
    bool watched; /* its next free is of interest for that */
};

enum { CUPLUG_CACHE_PLACES = 64 };

/* Why a thread may keep nothing, or nothing more. */
enum cuplug_cache_closed {
    CUPLUG_CACHE_KEEPING = 1, /* a free has to look after what other processes may still use; a thread may go on using what it has */
    CUPLUG_CACHE_WAITS = 2,   /* policy->free_waits */
    CUPLUG_CACHE_TIGHT = 4,   /* memory was out not long ago: record every free */
    CUPLUG_CACHE_SPARSE = 8,  /* policy->keeps: the next allocation may need what is freed now; or hardly any idle memory is to be kept */
    CUPLUG_CACHE_WANTED = 16, /* so many times: allocations that are out of memory and look for it everywhere */
};

/* All that a backend keeps for one context. `lock` guards everything but the fences, which guard themselves. What every allocation and free looks at lies
 * together: it begins where the fence's does, and ends there. */
struct cuplug_cache {
    struct cuplug_lock lock;
    const struct cuplug_policy *policy;
    struct cuplug_context *context;
    struct cuplug_cache *next; /* while unused */
    size_t magazines, ordered_magazines; /* what threads keep blocks in: for any stream, in the order of one */
    _Atomic size_t share __attribute__((aligned(64))), ordered_share; /* how much each may */
    _Atomic unsigned closed;   /* enum cuplug_cache_closed: 0, and they may */
    _Atomic unsigned most_unrecorded; /* how many blocks of it without a record */
    struct cuplug_fence fence;
    struct {
        _Atomic size_t now, high;
    } ordered __attribute__((aligned(64))); /* bytes of stream-ordered allocations, as the program asked */
    struct cuplug_heap heap;
    struct cuplug_list ready;    /* free for any new work of the context */
    struct cuplug_queue kept[2]; /* freed, but perhaps still another process's: for long enough, or since `kept_since` */
    time_t kept_since;
    struct cuplug_queue waiting; /* freed by cudaFree and the like, not yet passed by the fence */
    struct cuplug_debt unrecorded; /* waiting and not covered by a record */
    size_t live_bytes;
    size_t keep;       /* policy->keep in bytes */
    unsigned scattered; /* how many times it grew although as much was idle, only not in one piece */
    size_t given_back; /* … so that so much went back, to be taken again as one */
    unsigned tight;    /* frees until it is no longer so that memory was out not long ago */
    unsigned weary;    /* frees that do not try to give back, as the last one that did could not */
    time_t looked;     /* when segments were last looked through for old ones */
    bool ordered_forgotten; /* there were stream-ordered allocations, though the most of them was forgotten */
    _Atomic bool reserving; /* policy->keeps: a thread asks the driver for the one segment */
    struct cuplug_cache_stream *streams, *unused_streams, *by_id[CUPLUG_CACHE_PLACES];
    struct cuplug_slab stream_slab;
    size_t unswept;        /* what speaks for looking through them */
    size_t busy_streams;   /* had blocks when that was done */
    _Atomic bool sweeping; /* it is time: so many have freed; also looked at without the lock */
};

static inline bool cuplug_cache_is(const struct cuplug_cache *cache, enum cuplug_cache_closed why) {
    return atomic_load_explicit(&cache->closed, memory_order_relaxed) & why;
}

/* For any but WANTED, of which there can be several. The lock is held. */
static inline void cuplug_cache_close(struct cuplug_cache *cache, enum cuplug_cache_closed why, bool closed) {
    if (cuplug_cache_is(cache, why) != closed)
        atomic_fetch_xor(&cache->closed, why);
}

/* A stream-ordered allocation comes, or goes. Before the context can end: under the cache's lock, or a magazine's. */
static inline void cuplug_cache_ordered_more(struct cuplug_cache *cache, size_t bytes) {
    cuplug_raise_to(&cache->ordered.high, atomic_fetch_add_explicit(&cache->ordered.now, bytes, memory_order_relaxed) + bytes);
}

static inline void cuplug_cache_ordered_less(struct cuplug_cache *cache, size_t bytes) {
    atomic_fetch_sub_explicit(&cache->ordered.now, bytes, memory_order_relaxed);
}

/* Backend operations; `self` is the policy. */
CUresult cuplug_cache_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block);
CUresult cuplug_cache_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release);
int cuplug_cache_owns(void *self, CUdeviceptr pointer);
bool cuplug_cache_share(void *self, struct cuplug_context *context, struct cuplug_heap_block *block);
bool cuplug_cache_find(void *self, CUdeviceptr pointer, CUdeviceptr *base);
void cuplug_cache_ordered(void *self, CUdevice device, bool forget, struct cuplug_ordered *ordered);
size_t cuplug_cache_available(void *self, struct cuplug_context *context, size_t free);
size_t cuplug_cache_trim(void *self, CUdevice device, struct cuplug_context *context);
struct cuplug_stats;
void cuplug_cache_gauges(void *self, CUdevice device, struct cuplug_stats *stats); /* device: -1 for all */
void cuplug_cache_context_shared(void *self, struct cuplug_context *context);
void cuplug_cache_context_lost(void *self, struct cuplug_context *context);
void cuplug_cache_stream_destroyed(void *self, struct cuplug_context *context, CUstream stream, uint64_t id);
struct cuplug_kept;
void cuplug_cache_thread_ends(struct cuplug_kept *kept);

#define CUPLUG_CACHE_OPS                                                                                                                   \
    .alloc = cuplug_cache_alloc, .free = cuplug_cache_free, .owns = cuplug_cache_owns, .available = cuplug_cache_available,                \
    .trim = cuplug_cache_trim, .context_shared = cuplug_cache_context_shared, .context_lost = cuplug_cache_context_lost,                   \
    .stream_destroyed = cuplug_cache_stream_destroyed

/* The rest is between the cache_*.c files. */

/* The context's cache under this policy, made if need be; NULL without memory. */
struct cuplug_cache *cuplug_cache_of(const struct cuplug_policy *policy, struct cuplug_context *context);
/* … if there is one. */
static inline struct cuplug_cache *cuplug_cache_there(const struct cuplug_policy *policy, struct cuplug_context *context) {
    return atomic_load_explicit(&context->cache[policy->backend], memory_order_acquire);
}

/* The object of this context's stream, if it exists: two contexts' default streams have the same id. The lock is held. */
struct cuplug_cache_stream *cuplug_cache_stream_find(struct cuplug_cache *cache, const struct cuplug_context *context, uint64_t id);
/* The same for a release's stream, made if need be and pinned; NULL without memory. Takes the lock. */
struct cuplug_cache_stream *cuplug_cache_stream_pin(struct cuplug_cache *cache, struct cuplug_context *context, const struct cuplug_release *release);
/* Puts a live block, which has the marks of its free, where the stream gets it again. The lock is held. */
void cuplug_cache_stream_list(struct cuplug_cache *cache, struct cuplug_cache_stream *stream, struct cuplug_heap_block *block);
/* Frees a live block in the order of a stream; NULL without memory to describe the stream. The lock is held. */
struct cuplug_cache_stream *cuplug_cache_stream_free(struct cuplug_cache *cache, struct cuplug_heap_block *block,
                                                     const struct cuplug_release *release);
/* A block that was freed in another stream's order, for an allocation in the order of one that is made to wait for that; NULL if little is freed so, or none
 * fits. Takes the lock. */
struct cuplug_heap_block *cuplug_cache_stream_follow(struct cuplug_cache *cache, const struct cuplug_request *request);
/* Called once `sweeping`: looks for the streams that are gone. It asks the driver, so that what is kept of them comes to an end also where no
 * allocation ever has to ask. Takes the lock. */
void cuplug_cache_stream_sweep(struct cuplug_cache *cache);
/* Is the work over that the stream had when this block was freed in its order? */
bool cuplug_cache_stream_passed(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream, const struct cuplug_heap_block *block);
/* Is it another context's? Then no record of the cache's own context covers it. */
static inline bool cuplug_cache_stream_foreign(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream) {
    return atomic_load_explicit(&stream->fence.context, memory_order_relaxed) != cache->context;
}

/* What is kept for the stream's own context, whose records cover the stream; NULL if that context is gone, or without memory. */
static inline struct cuplug_cache *cuplug_cache_stream_home(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream) {
    return cuplug_cache_there(cache->policy, atomic_load_explicit(&stream->fence.context, memory_order_relaxed));
}
/* The stream could not be recorded, and perhaps never can: the next free in its own context records. Takes that one's lock. */
void cuplug_cache_stream_overdue(const struct cuplug_cache *cache, const struct cuplug_cache_stream *stream);

/* Small blocks have sizes of so many classes, so that they fit again: the smallest that holds `size` bytes (not 0), -1 for what is larger; and its
 * size. */
int cuplug_cache_class(size_t size);
size_t cuplug_cache_class_size(int class);
/* A block of the thread's own for an allocation of this class, NULL if it has none that may be used now. `ask`: the driver may be asked. */
struct cuplug_heap_block *cuplug_cache_thread_take(struct cuplug_cache *cache, struct cuplug_context *context, int class, bool ask, CUdeviceptr *address);
/* How many more blocks of this class the thread should take along from everybody's ready ones, so that it need not come for each, and its blocks lie
 * together. If it is any, its magazine stays locked, before the cache, until it is given them, which have become live (or none). Else NULL. */
struct cuplug_magazine *cuplug_cache_thread_open(struct cuplug_cache *cache, struct cuplug_context *context, int class, size_t *many);
void cuplug_cache_thread_stock(struct cuplug_magazine *magazine, int class, const struct cuplug_queue *blocks);
/* Frees a live block into the thread's own, recording if it is time. *more: others went to everybody for it. False if the thread cannot keep it. */
bool cuplug_cache_thread_give(struct cuplug_cache *cache, const struct cuplug_block *freed, const struct cuplug_release *release, bool *more);
/* This stream, pinned, is about to be destroyed: what threads keep in its order goes to its own list. */
void cuplug_cache_thread_stream_over(struct cuplug_cache *cache, const struct cuplug_cache_stream *stream);
/* All that threads keep goes to everybody; if the context has ended, to nobody. */
void cuplug_cache_thread_collect(struct cuplug_cache *cache);
/* How much each thread may keep is to be reckoned anew, as there is more or less memory, or more or fewer threads. The lock is held. */
void cuplug_cache_thread_share(struct cuplug_cache *cache);
/* Bytes that threads keep; to the cache they count as live. */
size_t cuplug_cache_thread_bytes(struct cuplug_cache *cache);
/* The same, but for magazines that stay locked for long. */
size_t cuplug_cache_thread_bytes_soon(struct cuplug_cache *cache);

/* A record of the context up to this mark, in a free. */
bool cuplug_cache_record(struct cuplug_fence *fence, uint64_t mark);

/* Queues a block that earlier work of the whole context may still use. The lock is held. */
void cuplug_cache_queue(struct cuplug_cache *cache, struct cuplug_heap_block *block);

/* Frees a block that another process may use; those that were kept long enough (or all of them) are queued. The lock is held. */
void cuplug_cache_keep(struct cuplug_cache *cache, struct cuplug_heap_block *block);
void cuplug_cache_release_kept(struct cuplug_cache *cache, bool all);

/* Moves every block that the fences have passed to `ready`. The lock is held. */
void cuplug_cache_drain(struct cuplug_cache *cache);
/* Asks the driver what is done; drain next. Takes the lock. */
void cuplug_cache_poll(struct cuplug_cache *cache);
/* Blocks the host until everything recorded is done; drain next. Takes the lock. */
void cuplug_cache_wait(struct cuplug_cache *cache);
/* Bytes that no allocation uses and that one in this context could get: of all its device, or of its own segment if it keeps that. */
size_t cuplug_cache_idle(const struct cuplug_policy *policy, struct cuplug_context *context);
/* Records all the work of the context so far, and of those in whose streams' order its blocks were freed, for what no free recorded. False if nothing is
 * waiting, or that was not possible. */
bool cuplug_cache_record_all(struct cuplug_cache *cache);
/* The same for every other context of the device; then waits for it. */
bool cuplug_cache_record_others(const struct cuplug_policy *policy, struct cuplug_context *context);
/* Takes idle memory that can be given back by itself, and that no work can touch any more, out of the heap: the caller's. 0 if there is none; with `most`, no
 * more than that; with `before`, that has been idle since then. Takes the lock. */
size_t cuplug_cache_cut_out(struct cuplug_cache *cache, struct cuplug_context *context, size_t most, time_t before, CUdeviceptr *base);
/* The reverse, of what the driver did not take. Takes the lock. */
void cuplug_cache_put_back(struct cuplug_cache *cache, struct cuplug_context *context, CUdeviceptr base, size_t size);
/* Gives whole free segments back to the driver, which waits for the device, until they come to `enough` bytes; how many it gave. With `before`, only what has
 * been idle since then. Takes the lock. */
size_t cuplug_cache_give_back(struct cuplug_cache *cache, struct cuplug_context *context, size_t enough, time_t before);
/* Segments that lie next to each other are not one, whatever the policy says. Takes the lock. */
void cuplug_cache_apart(struct cuplug_cache *cache);
/* So many times, as to give back and take again costs a wait for the device: then that is rarer than growing, which costs as much. */
enum { CUPLUG_CACHE_SCATTERED = 2 };

/* Is perhaps more idle than should be? The lock is held. */
static inline bool cuplug_cache_untidy(const struct cuplug_cache *cache) {
    size_t idle = cache->heap.reserved - cache->live_bytes;

    return (cache->heap.empty || cache->policy->whole) && !cache->policy->keeps &&
           (idle > cache->keep || cache->policy->decay || (cache->scattered >= CUPLUG_CACHE_SCATTERED && idle > cache->heap.reserved / 2));
}
/* Sees to it now and then that what a thread keeps does not hide from that. Takes the lock. */
void cuplug_cache_look_after(struct cuplug_cache *cache, struct cuplug_context *context);
/* Then, in a free that natively would have waited for the device, nothing locked: gives back what is too much now. */
void cuplug_cache_tidy(struct cuplug_cache *cache, struct cuplug_context *context);
/* The same for every cache of this policy on the device. */
void cuplug_cache_give_back_all(const struct cuplug_policy *policy, CUdevice device);

/* Bytes that the driver calls free on the context's device; 0 if it does not say. */
size_t cuplug_cache_device_free(struct cuplug_context *context);
/* Bytes in the context's segments. Takes the lock. */
size_t cuplug_cache_reserved(struct cuplug_cache *cache);
/* Seconds, for what is old. */
time_t cuplug_cache_now(void);

/* How much a cache that has `reserved` bytes grows by: as much again, up to 64 MiB, so that a growing program makes few driver calls, a small one stays small,
 * and a large block of later on finds room in one piece. */
size_t cuplug_cache_step(size_t reserved);

/* True for one caller a device: whoever is to say something about it. */
static inline bool cuplug_cache_first(_Atomic uint64_t *told, CUdevice device) {
    uint64_t bit = (uint64_t)1 << (device & 63);

    return !(atomic_fetch_or(told, bit) & bit);
}

static inline void cuplug_cache_forgive(struct cuplug_debt *debt) {
    debt->bytes = debt->blocks = 0;
    atomic_store_explicit(&debt->overdue, false, memory_order_relaxed);
}

/* Adds a freed block to the debt. True if it is time to record (measured: a record this often costs a training step nothing); then the debt is
 * settled. */
static inline bool cuplug_cache_owe(struct cuplug_debt *debt, size_t bytes, bool at_once) {
    debt->bytes += bytes;
    debt->blocks++;
    if (!at_once && !debt->overdue && debt->bytes < (16u << 20) && debt->blocks < 64)
        return false;
    cuplug_cache_forgive(debt);
    return true;
}

/* A block is handed out, or comes back from whoever had it. The lock is held. */
static inline void cuplug_cache_lives(struct cuplug_cache *cache, const struct cuplug_heap_block *block) {
    cache->live_bytes += block->size;
    cuplug_heap_lives(&cache->heap, block);
}

static inline void cuplug_cache_dies(struct cuplug_cache *cache, struct cuplug_heap_block *block) {
    cache->live_bytes -= block->size;
    cuplug_heap_dies(&cache->heap, block, cache->policy->decay ? cuplug_cache_now() : 0);
}

/* Gives a segment back to the driver, which has been taken out of the heap. */
static inline CUresult cuplug_cache_release(const struct cuplug_policy *policy, struct cuplug_context *context, CUdeviceptr base, size_t size) {
    return policy->release ? policy->release(context, base, size) : cuplug_real.cuMemFree_v2(base);
}

/* Tells the statistics, and the policy, that a segment is no longer there. */
void cuplug_cache_segment_gone(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size);

static inline size_t cuplug_cache_round_up(size_t size, size_t to) {
    return (size + to - 1) & ~(to - 1);
}

#endif
