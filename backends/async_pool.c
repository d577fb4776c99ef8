/*
 * async_pool.c: the pools of the backend async, from a context's first allocation until they are given back. Owns the lists of those whose context is gone
 * and of those to be used again (lists_lock, taken before a store's own). The device's default pool is never touched.
 */
#include "async.h"

#include "config/options.h"
#include "shim/capture.h"
#include "shim/log.h"
#include "shim/pages.h"
#include "shim/stats.h"

typedef struct cuplug_async store_t;
typedef struct cuplug_plugin_block block_t;

static struct cuplug_lock lists_lock;
static store_t *leftovers, *spares;
static _Atomic bool any_leftovers; /* looked at without the lock */
static _Atomic uint64_t told;      /* devices, a bit each, that have no pools and were said so */

static CUresult refuse(CUdevice device) {
    if (cuplug_cache_first(&told, device))
        cuplug_log(CUPLUG_LOG_ERROR, "async: device %d has no memory pools; %s", device,
                   cuplug_options.strict ? "allocations will fail" : "using direct there");
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Does the device have pools? Not known: its context will say what is wrong. */
static bool usable(CUdevice device) {
    int supported = 1;

    if (!cuplug_real_has(cuMemPoolCreate))
        return false;
    cuplug_real.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
    return supported;
}

static cuuint64_t threshold(CUdevice device) {
    struct cuplug_amount keep = cuplug_async_options.threshold;
    size_t bytes = 0;

    if (!keep.percent)
        return keep.value;
    cuplug_real.cuDeviceTotalMem_v2(&bytes, device);
    return cuplug_amount_of(keep, bytes);
}

static CUresult make_pool(CUdevice device, CUmemoryPool *pool) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    cuuint64_t keep = threshold(device);
    CUresult result = cuplug_real.cuMemPoolCreate(pool, &props);

    return result == CUDA_SUCCESS ? cuplug_real.cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) : result;
}

static CUresult make(store_t *store) {
    int none = 0;
    CUresult result = make_pool(store->device, &store->plain);

    if (result == CUDA_SUCCESS) /* or an allocation might come to wait for what a cudaFreeAsync follows */
        result = cuplug_real.cuMemPoolSetAttribute(store->plain, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &none);
    if (result == CUDA_SUCCESS)
        result = make_pool(store->device, &store->ordered);
    if (result == CUDA_SUCCESS)
        result = cuplug_real.cuStreamCreate(&store->stream, CU_STREAM_NON_BLOCKING);
    return result;
}

/* Takes back what make() made, as far as it came. */
static void unmake(store_t *store) {
    if (store->stream)
        cuplug_real.cuStreamDestroy_v2(store->stream);
    if (store->ordered)
        cuplug_real.cuMemPoolDestroy(store->ordered);
    if (store->plain)
        cuplug_real.cuMemPoolDestroy(store->plain);
}

static store_t *take_spare(void) {
    store_t *store;

    cuplug_lock(&lists_lock);
    store = spares;
    if (store)
        spares = store->next;
    cuplug_unlock(&lists_lock);
    if (!store)
        store = cuplug_pages_map(sizeof *store);
    if (store)
        store->slab.object_size = sizeof(block_t);
    return store;
}

static void put_aside(store_t *store) {
    store->plain = store->ordered = NULL;
    store->stream = NULL;
    store->witness = 0;
    cuplug_lock(&lists_lock);
    store->next = spares;
    spares = store;
    cuplug_unlock(&lists_lock);
}

/* Both sides of a race with cuplug_async_reached(): the bit is set before the store is looked for, and the store there before the bits are. */
static void reach_all(store_t *store) {
    uint64_t peers = atomic_load(&store->context->peers);

    for (CUdevice by = 0; peers; by++, peers >>= 1)
        if (peers & 1)
            cuplug_async_reach(store, by);
}

CUresult cuplug_async_of(struct cuplug_context *context, store_t **there) {
    store_t *store = *there = cuplug_async_there(context);
    CUstreamCaptureMode mode;
    void *none = NULL;
    CUresult result;

    if (store)
        return CUDA_SUCCESS;
    if (!usable(context->device))
        return refuse(context->device);
    store = take_spare();
    if (!store)
        return CUDA_ERROR_OUT_OF_MEMORY;
    store->device = context->device;
    mode = cuplug_capture_relax();
    result = cuplug_context_answered(context, make(store));
    if (result == CUDA_SUCCESS) {
        cuplug_lock(&store->lock); /* a thread that frees into the former context may still look */
        store->context = context;
        cuplug_fence_init(&store->fence, context, NULL, CUPLUG_BACKEND_ASYNC);
        cuplug_unlock(&store->lock);
        *there = store;
    }
    if (result == CUDA_SUCCESS && !atomic_compare_exchange_strong(&context->cache[CUPLUG_BACKEND_ASYNC], &none, store)) {
        *there = none; /* another thread was first */
        store->context = NULL;
    }
    if (*there != store) {
        unmake(store);
        put_aside(store);
    } else {
        reach_all(store);
    }
    cuplug_capture_restore(mode);
    return result == CUDA_ERROR_NOT_SUPPORTED ? refuse(context->device) : result;
}

static size_t reserved(CUmemoryPool pool) {
    cuuint64_t value = 0;

    cuplug_real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
    return value;
}

/* No two allocations of a process have the same number, so no other memory can pass for it. */
void cuplug_async_watch(store_t *store) {
    CUdeviceptr witness = 0;
    unsigned long long id = 0;

    if (cuplug_real.cuMemAllocFromPoolAsync(&witness, 1, store->plain, store->stream) != CUDA_SUCCESS)
        return;
    cuplug_real.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, witness);
    cuplug_lock(&store->lock);
    if (!store->witness && id) {
        store->witness_id = id;
        store->witness = witness;
        witness = 0;
    }
    cuplug_unlock(&store->lock);
    if (witness)
        cuplug_real.cuMemFreeAsync(witness, store->stream);
}

void cuplug_async_unwatch(store_t *store) {
    bool ordered = reserved(store->ordered) > 0; /* freed, perhaps, by an order that has not come to it: it outlives the context, as what the program has does */
    CUdeviceptr witness = 0;

    cuplug_lock(&store->lock);
    if (!store->index && !ordered) {
        witness = store->witness;
        store->witness = 0;
    }
    cuplug_unlock(&store->lock);
    if (witness)
        cuplug_real.cuMemFreeAsync(witness, store->stream);
}

void cuplug_async_reach(store_t *store, CUdevice by) {
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = by}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    cuplug_real.cuMemPoolSetAccess(store->plain, &access, 1);
}

size_t cuplug_async_reserved(const store_t *store) {
    CUstreamCaptureMode mode = cuplug_capture_relax();
    size_t bytes = reserved(store->plain) + reserved(store->ordered);

    cuplug_capture_restore(mode);
    return bytes;
}

void cuplug_async_count(store_t *store, bool always) {
    enum { ALLOCATIONS = 64 };
    size_t now, before;

    if (!always && atomic_load_explicit(&store->used, memory_order_relaxed) <= atomic_load_explicit(&store->reserved, memory_order_relaxed) &&
        atomic_fetch_add_explicit(&store->asked, 1, memory_order_relaxed) < ALLOCATIONS)
        return;
    atomic_store_explicit(&store->asked, 0, memory_order_relaxed);
    now = cuplug_async_reserved(store);
    before = atomic_exchange_explicit(&store->reserved, now, memory_order_relaxed);
    CUPLUG_LEVEL(CUPLUG_BACKEND_ASYNC, store->device, reserved_bytes, (int64_t)now - (int64_t)before);
}

/* Stream-ordered memory stays the program's: the driver will free it. */
static bool lost(block_t *block, void *arg) {
    store_t *store = arg;

    if (block->kind == CUPLUG_SYNC)
        return true;
    cuplug_slab_give(&store->slab, block);
    return false;
}

void cuplug_async_leave(struct cuplug_context *context) {
    store_t *store = atomic_exchange(&context->cache[CUPLUG_BACKEND_ASYNC], NULL);

    if (!store)
        return;
    cuplug_lock(&lists_lock);
    cuplug_lock(&store->lock);
    store->context = NULL;
    store->stream = NULL;
    cuplug_plugin_index_filter(&store->index, lost, store);
    store->oldest = store->newest = NULL;
    store->waiting = 0;
    cuplug_cache_forgive(&store->unrecorded);
    cuplug_fence_forget(&store->fence);
    cuplug_unlock(&store->lock);
    store->next = leftovers;
    leftovers = store;
    atomic_store(&any_leftovers, true);
    cuplug_unlock(&lists_lock);
}

/* Are its pools still there? A driver may have ended them with the context. */
static bool survives(const store_t *store) {
    unsigned long long id = 0;
    CUmemoryPool pool = NULL;

    return store->witness && cuplug_real.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, store->witness) == CUDA_SUCCESS && pool == store->plain &&
           cuplug_real.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, store->witness) == CUDA_SUCCESS && id == store->witness_id;
}

/* Any of its allocations; NULL if there are no more. */
static block_t *next_of(store_t *store) {
    block_t *block;

    cuplug_lock(&store->lock);
    block = store->index;
    if (block)
        cuplug_plugin_index_remove(&store->index, block);
    cuplug_unlock(&store->lock);
    return block;
}

/* False if the driver cannot free now: its current context has ended, say. */
static bool give_back_blocks(store_t *store, bool there) {
    CUresult result;
    block_t *block;

    while ((block = next_of(store))) {
        result = there ? cuplug_real.cuMemFree_v2(block->address) : CUDA_SUCCESS;
        cuplug_lock(&store->lock);
        if (result == CUDA_SUCCESS)
            cuplug_slab_give(&store->slab, block);
        else
            cuplug_plugin_index_insert(&store->index, block);
        cuplug_unlock(&store->lock);
        if (result != CUDA_SUCCESS)
            return false;
    }
    return true;
}

/* What the program has of the ordered pool stays until it frees it, as natively. */
static bool give_back(store_t *store) {
    bool there = survives(store);

    if (!give_back_blocks(store, there) || (there && cuplug_real.cuMemFree_v2(store->witness) != CUDA_SUCCESS))
        return false;
    if (there)
        unmake(store);
    CUPLUG_LEVEL(CUPLUG_BACKEND_ASYNC, store->device, reserved_bytes, -(int64_t)atomic_exchange(&store->reserved, 0));
    atomic_store(&store->used, 0);
    return true;
}

/* The first that nobody is at yet. */
static store_t *claim(CUdevice device) {
    store_t *store;

    cuplug_lock(&lists_lock);
    for (store = leftovers; store && (store->device != device || store->clearing);)
        store = store->next;
    if (store)
        store->clearing = true;
    cuplug_unlock(&lists_lock);
    return store;
}

/* `done`: nothing is left over of it. */
static void unclaim(store_t *store, bool done) {
    store_t **link = &leftovers;

    cuplug_lock(&lists_lock);
    while (*link != store)
        link = &(*link)->next;
    if (done)
        *link = store->next;
    store->clearing = false;
    atomic_store(&any_leftovers, leftovers != NULL);
    cuplug_unlock(&lists_lock);
}

void cuplug_async_clear(CUdevice device) {
    CUstreamCaptureMode mode;
    bool done = true;
    store_t *store;

    if (!atomic_load_explicit(&any_leftovers, memory_order_relaxed))
        return;
    mode = cuplug_capture_relax();
    while (done && (store = claim(device))) {
        done = give_back(store);
        unclaim(store, done);
        if (done)
            put_aside(store);
    }
    cuplug_capture_restore(mode);
}

bool cuplug_async_left(CUdeviceptr pointer) {
    bool found = false;

    if (!atomic_load_explicit(&any_leftovers, memory_order_relaxed))
        return false;
    cuplug_lock(&lists_lock);
    for (store_t *store = leftovers; store && !found; store = store->next) {
        cuplug_lock(&store->lock);
        found = cuplug_plugin_index_find(store->index, pointer) != NULL;
        cuplug_unlock(&store->lock);
    }
    cuplug_unlock(&lists_lock);
    return found;
}
