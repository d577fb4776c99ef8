/*
 * pool.c — memory pools: what stream-ordered allocation draws from.
 *
 * A freed block is at once the next allocation's on the same stream, anybody's when the free has been reached, and as a
 * last resort anybody's who waits for it. What a synchronisation finds idle above the release threshold goes back to the
 * device. Frees that no stream orders (cuMemFree of pool memory) count as idle at once: that is the caller's promise.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_pool {
    bool live, destroyed; /* destroyed: what is in use goes once it is freed */
    int device;
    struct sim_alloc cached; /* list head, last freed first */
    cuuint64_t threshold, reserved, used, reserved_high, used_high;
    int follow, opportunistic, internal;
    unsigned access; /* bit per device */
    CUmemPoolProps props;
    struct sim_pool *next;
};

static struct sim_pool *pools; /* never shrinks: dead ones are reused, as handles are */

static struct sim_pool *new_pool(int device) {
    struct sim_pool *pool = pools;
    while (pool && pool->live)
        pool = pool->next;
    if (!pool) {
        pool = calloc(1, sizeof(*pool));
        pool->next = pools;
        pools = pool;
    }
    struct sim_pool *next = pool->next;
    *pool = (struct sim_pool){.live = true, .device = device, .follow = 1, .opportunistic = 1, .internal = 1, .next = next};
    pool->access = 1u << device;
    pool->cached.prev = pool->cached.next = &pool->cached;
    return pool;
}

void sim_pools_setup(struct sim_device *device) {
    device->default_pool = device->current_pool = new_pool(device->ordinal);
    device->graph_pool = new_pool(device->ordinal);
    device->graph_pool->threshold = ~(cuuint64_t)0; /* graphs keep their memory until cuDeviceGraphMemTrim */
}

struct sim_pool *sim_pool_check(CUmemoryPool handle) {
    for (struct sim_pool *pool = pools; pool; pool = pool->next)
        if ((CUmemoryPool)pool == handle)
            return pool->live ? pool : NULL;
    return NULL;
}

static size_t span_of(size_t size) {
    size_t unit = size <= SIM_SMALL ? SIM_UNIT : SIM_PAGE;
    return (size - 1) / unit * unit + unit;
}

static void uncache(struct sim_alloc *a) {
    a->prev->next = a->next;
    a->next->prev = a->prev;
    a->cached = false;
}

static void count(struct sim_pool *pool, size_t size, size_t span, bool fresh) {
    pool->used += size;
    if (fresh)
        pool->reserved += span;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

static bool is_idle(const struct sim_alloc *a) {
    return !a->idle || a->idle->done;
}

static struct sim_alloc *cached_block(struct sim_pool *pool, size_t span, struct sim_stream *stream, bool wait) {
    for (struct sim_alloc *a = pool->cached.next; a != &pool->cached; a = a->next)
        if (a->span == span && (wait || is_idle(a) || (stream && a->idle_stream == stream->id)))
            return a;
    return NULL;
}

struct sim_alloc *sim_pool_alloc(struct sim_pool *pool, size_t size, struct sim_stream *stream, struct sim_op **after) {
    struct sim_device *device = &sim.device[pool->device];
    if (size > device->total_pages * SIM_PAGE)
        return NULL;
    size_t span = span_of(size);
    struct sim_alloc *a = cached_block(pool, span, stream, false);
    bool fresh = !a;
    if (!a && pool->props.maxSize && span > pool->props.maxSize - pool->reserved)
        return NULL;
    if (!a)
        a = sim_pages_take(device, pool, size, 0);
    if (!a && sim_pool_reclaim(pool->device) > 0)
        a = sim_pages_take(device, pool, size, 0);
    if (!a && stream && pool->internal) {
        a = cached_block(pool, span, stream, true);
        fresh = false;
        if (a)
            *after = sim_op_ref(a->idle);
    }
    if (!a)
        return NULL;
    if (!fresh)
        uncache(a);
    sim_op_replace(&a->idle, NULL);
    a->kind = SIM_POOL;
    a->size = size;
    a->pool = pool;
    a->ctx = NULL;
    a->freeing = false;
    a->id = ++sim.next_id;
    count(pool, size, span, fresh);
    return a;
}

void sim_pool_free(struct sim_alloc *a, struct sim_stream *stream, struct sim_op *op) {
    struct sim_pool *pool = a->pool;
    pool->used -= a->size;
    a->freeing = false;
    a->cached = true;
    a->kind = SIM_POOL;
    a->idle_stream = stream ? stream->id : 0;
    sim_op_replace(&a->idle, op);
    if (!op)
        memset((void *)a->base, 0xdd, a->span < SIM_SMALL ? a->span : SIM_SMALL);
    a->prev = &pool->cached;
    a->next = pool->cached.next;
    a->next->prev = a;
    pool->cached.next = a;
}

void sim_pool_keep_used(const struct sim_alloc *a) {
    a->pool->used += a->size;
}

static void release(struct sim_alloc *a) {
    uncache(a);
    a->pool->reserved -= a->span;
    sim_op_replace(&a->idle, NULL);
    sim_pages_give(a);
}

void sim_pool_trim(struct sim_pool *pool, size_t keep) {
    for (struct sim_alloc *a = pool->cached.prev, *prev; a != &pool->cached && pool->reserved > keep; a = prev) {
        prev = a->prev;
        if (is_idle(a))
            release(a);
    }
}

static void trim_destroyed(void) {
    for (struct sim_pool *pool = pools; pool; pool = pool->next)
        if (pool->live && pool->destroyed)
            sim_pool_trim(pool, 0);
}

void sim_pool_synchronised(int device) {
    trim_destroyed();
    for (struct sim_pool *pool = pools; pool; pool = pool->next)
        if (pool->live && pool->device == device && pool->reserved > pool->threshold)
            sim_pool_trim(pool, pool->threshold);
}

size_t sim_pool_reclaim(int device) {
    size_t before = sim.device[device].used_pages;
    for (struct sim_pool *pool = pools; pool; pool = pool->next)
        if (pool->live && pool->device == device)
            sim_pool_trim(pool, 0);
    return before - sim.device[device].used_pages;
}

/* The primary context is gone. Live memory of the device's pools stays, as the pools are the device's. */
void sim_pools_end_ctx(int device) {
    struct sim_device *d = &sim.device[device];
    for (struct sim_pool *pool = pools; pool; pool = pool->next) {
        if (!pool->live || pool->device != device)
            continue;
        sim_pool_trim(pool, 0);
        if (pool == d->default_pool)
            pool->threshold = 0;
        else if (pool != d->graph_pool && pool->reserved == 0)
            pool->live = false; /* not measured; but what is in it stays, as in the default one */
    }
    d->current_pool = d->default_pool;
}

/* --- entry points ----------------------------------------------------------------------------------------------------- */

static bool valid(CUdevice device) {
    return device >= 0 && device < sim.devices;
}

CUresult sim_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(props->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_pool *pool = new_pool(props->location.id);
    pool->props = *props;
    *out = (CUmemoryPool)pool;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemPoolDestroy(CUmemoryPool handle) {
    sim_lock();
    struct sim_pool *pool = sim_pool_check(handle);
    if (!pool || pool == sim.device[pool->device].default_pool)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    struct sim_device *device = &sim.device[pool->device];
    if (device->current_pool == pool)
        device->current_pool = device->default_pool;
    pool->destroyed = true;
    sim_pool_trim(pool, 0);
    if (pool->reserved == 0)
        pool->live = false; /* one with live memory stays until nobody can tell */
    return sim_unlock_return(CUDA_SUCCESS);
}

/* The pool, for a call that is not safe while somebody captures. */
static CUresult checked(CUmemoryPool handle, struct sim_pool **pool) {
    struct sim_ctx *ctx;
    *pool = sim_pool_check(handle);
    if (!*pool)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_current(&ctx) == CUDA_SUCCESS ? sim_capture_guard(ctx) : CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    sim_lock();
    struct sim_pool *pool;
    CUresult r = checked(handle, &pool);
    trim_destroyed();
    if (r == CUDA_SUCCESS)
        sim_pool_trim(pool, keep);
    return sim_unlock_return(r);
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    sim_lock();
    struct sim_pool *pool;
    CUresult r = value ? checked(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        pool->follow = *(int *)value;
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        pool->opportunistic = *(int *)value;
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->internal = *(int *)value;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(cuuint64_t *)value;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* can only be reset */
        if (*(cuuint64_t *)value)
            return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
        pool->reserved_high = pool->reserved;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(cuuint64_t *)value)
            return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
        pool->used_high = pool->used;
        break;
    default:
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    sim_lock();
    struct sim_pool *pool;
    CUresult r = value ? checked(handle, &pool) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *(int *)value = pool->follow;
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *(int *)value = pool->opportunistic;
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->internal;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        break;
    default:
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count_) {
    sim_lock();
    struct sim_pool *pool = sim_pool_check(handle);
    sim_unlock();
    if (!pool || (!map && count_ > 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count_; i++) { /* its own device cannot lose it */
        bool own = map[i].location.id == pool->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && (own || !valid(map[i].location.id)))
            return CUDA_ERROR_INVALID_DEVICE;
    }
    sim_lock();
    for (size_t i = 0; i < count_; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            continue;
        pool->access &= ~(1u << map[i].location.id);
        pool->access |= (unsigned)(map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) << map[i].location.id;
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    sim_lock();
    struct sim_pool *pool = sim_pool_check(handle);
    sim_unlock();
    if (!pool || !flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    bool has = location->type != CU_MEM_LOCATION_TYPE_DEVICE || (valid(location->id) && (pool->access >> location->id & 1));
    *flags = has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)sim.device[device].default_pool;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    *out = (CUmemoryPool)sim.device[device].current_pool;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_pool *pool = sim_pool_check(handle);
    if (!pool || pool->device != device)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    sim.device[device].current_pool = pool;
    return sim_unlock_return(CUDA_SUCCESS);
}

/* The forms of CUDA 13, which name a location instead of a device. */
static bool on_device(const CUmemLocation *location, CUmemAllocationType type) {
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult sim_cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    return on_device(location, type) ? sim_cuDeviceGetDefaultMemPool(out, location->id) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    return on_device(location, type) ? sim_cuDeviceGetMemPool(out, location->id) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    return on_device(location, type) ? sim_cuDeviceSetMemPool(location->id, pool) : CUDA_ERROR_INVALID_VALUE;
}
