/*
 * cache_fast.c: the common allocation and the common free, each in one go from the table to the magazine: nothing is built on the way, nobody else's lock is
 * taken, and no function called that is not compiled in. Whatever is not common goes the long way, which does the same in cuplug_core_alloc and
 * cuplug_core_free.
 */
#include "magazine.h"

#include "shim/live_table.h"
#include "shim/stats.h"

MAGAZINE_INLINE bool take(struct cuplug_kept *kept, struct cuplug_magazine *magazine, int backend, struct cuplug_context *context, size_t size, uint64_t stream_id,
                          CUdeviceptr *pointer) {
    int class = cuplug_cache_class(size);
    struct cuplug_heap_block *block;
    struct cuplug_record *record;
    struct cuplug_shard *shard;
    CUdeviceptr address;
    struct bin *bin;

    if (magazine->context != context || magazine->backend != backend || class < 0 || kept->next_number == kept->last_number)
        return false;
    cuplug_brief_lock(&magazine->lock);
    bin = &magazine->bin[class];
    block = stream_id ? bin->oldest : next_of(magazine, bin);
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
    if (stream_id) { /* before anybody can find the record, and free it */
        drop_oldest(magazine, bin);
        cuplug_cache_ordered_more(magazine->cache, size);
    } else {
        drop_next(magazine, bin);
    }
    record->what = cuplug_record_what(size, stream_id ? CUPLUG_ASYNC : CUPLUG_SYNC, backend);
    record->cookie = block;
    record->context = context;
    record->stream = stream_id;
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

bool cuplug_backend_take_kept(int backend, struct cuplug_context *context, size_t size, CUdeviceptr *pointer) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? kept->plain : NULL;

    return magazine && take(kept, magazine, backend, context, size, 0, pointer);
}

bool cuplug_backend_take_in_order(int backend, struct cuplug_context *context, size_t size, uint64_t stream_id, CUdeviceptr *pointer) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? in_order(kept, context, stream_id) : NULL;

    return magazine && take(kept, magazine, backend, context, size, stream_id, pointer);
}

/* Has the long way to see to this allocation? `freed` is its block if it is the cache's. The locks of magazine and shard are held. */
MAGAZINE_INLINE bool uncommon(const struct cuplug_magazine *magazine, const struct cuplug_record *record, const struct cuplug_heap_block *freed, bool ordered,
                              size_t share) {
    return record->kind != (ordered ? CUPLUG_ASYNC : CUPLUG_SYNC) || record->context != magazine->context || (int)record->backend != magazine->backend ||
           freed->shared || freed->class < 0 || magazine->bytes + freed->size > share;
}

MAGAZINE_INLINE struct cuplug_context *keep(struct cuplug_kept *kept, struct cuplug_magazine *magazine, CUdeviceptr pointer, bool ordered) {
    struct cuplug_shard *shard = cuplug_shard_of(pointer);
    struct cuplug_context *context;
    struct cuplug_heap_block *freed;
    struct cuplug_record *entry;
    struct cuplug_cache *cache;
    struct cuplug_fence *fence;
    int backend, device;
    size_t size, share;
    uint64_t mark;
    bool due;

    cuplug_brief_lock(&magazine->lock);
    cache = magazine->cache;
    context = magazine->context;
    if (!cache || busy(cache) || !cuplug_context_live(context) || cuplug_context_fault(context))
        goto no;
    share = share_of(cache, ordered);
    cuplug_brief_lock(&shard->lock);
    entry = cuplug_shard_find(shard, pointer);
    freed = entry ? entry->cookie : NULL;
    if (!entry || uncommon(magazine, entry, freed, ordered, share)) {
        cuplug_brief_unlock(&shard->lock);
        goto no;
    }
    size = entry->size;
    backend = (int)entry->backend;
    device = (int)entry->device;
    cuplug_shard_take_out(shard, entry);
    cuplug_brief_unlock(&shard->lock);
    due = put(magazine, freed, ordered, share, &fence, &mark);
    if (ordered)
        cuplug_cache_ordered_less(cache, size);
    cuplug_brief_unlock(&magazine->lock);
    if (due)
        cuplug_magazine_record(magazine, fence, mark);
    if (!ordered)
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

struct cuplug_context *cuplug_backend_keep_freed(CUdeviceptr pointer) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? kept->plain : NULL;

    return magazine ? keep(kept, magazine, pointer, false) : NULL;
}

struct cuplug_context *cuplug_backend_keep_freed_in_order(CUdeviceptr pointer, const struct cuplug_context *context, uint64_t stream_id) {
    struct cuplug_kept *kept = cuplug_self.kept;
    struct cuplug_magazine *magazine = kept ? in_order(kept, context, stream_id) : NULL;

    return magazine ? keep(kept, magazine, pointer, true) : NULL;
}
