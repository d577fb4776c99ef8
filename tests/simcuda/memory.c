/*
 * memory.c — allocating and freeing device, managed and pool memory as the driver does it.
 *
 * A free of synchronous memory waits for all work of its own context and holds back new launches meanwhile; a free of
 * pool memory waits for nothing; an allocation never waits. Out pointers are NULL whenever there is no memory in them.
 */
#include "graph.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MANAGED_LIMIT ((size_t)1 << 40)

static struct sim_alloc all = {.prev = &all, .next = &all}; /* those that belong to a context */

static void own(struct sim_alloc *alloc, struct sim_ctx *ctx) {
    alloc->ctx = ctx;
    alloc->prev = &all;
    alloc->next = all.next;
    all.next->prev = alloc;
    all.next = alloc;
}

struct sim_alloc *sim_find(uintptr_t address) {
    struct sim_alloc *alloc = sim_pages_find(address);
    if (!alloc)
        alloc = sim_range_find(address);
    if (!alloc || alloc->freeing || alloc->cached || address >= alloc->base + alloc->size)
        return NULL;
    return alloc;
}

void sim_alloc_end(struct sim_alloc *alloc) {
    if (alloc->ctx && !alloc->pool) {
        alloc->prev->next = alloc->next;
        alloc->next->prev = alloc->prev;
    }
    if (alloc->kind == SIM_DEVICE) {
        sim_pages_give(alloc);
    } else if (alloc->kind == SIM_GRAPH && alloc->graphs > 0) {
        alloc->freeing = true; /* the address stays the graphs' */
    } else if (alloc->kind == SIM_POOL || alloc->kind == SIM_GRAPH) {
        bool of_pool = alloc->kind == SIM_POOL;
        sim_pool_free(alloc, NULL, NULL);
        if (of_pool)
            sim_pool_keep_used(alloc);
    } else {
        if (!alloc->registered)
            munmap((void *)alloc->base, alloc->span);
        sim_range_remove(alloc);
    }
}

void sim_ctx_end_memory(struct sim_ctx *ctx) {
    for (struct sim_alloc *a = all.next, *next; a != &all; a = next) {
        next = a->next;
        if (a->ctx == ctx)
            sim_alloc_end(a);
    }
}

static CUresult allocate(CUdeviceptr *out, size_t size) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_guard(ctx);
    if (r == CUDA_SUCCESS && (size == 0 || !out))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_device *device = &sim.device[ctx->device];
    struct sim_alloc *alloc = sim_pages_take(device, ctx, size, 0);
    if (!alloc && sim_pool_reclaim(ctx->device) > 0)
        alloc = sim_pages_take(device, ctx, size, 0);
    if (!alloc)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    alloc->kind = SIM_DEVICE;
    own(alloc, sim_ctx_root(ctx));
    *out = alloc->base;
    return sim_unlock_return(CUDA_SUCCESS);
}

/* Whether there is a context is looked at before the arguments are. */
CUresult sim_cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
    if (out)
        *out = 0;
    return allocate(out, size);
}

/* The 32-bit forms of CUDA 2: no simulated address fits, which is what a 64-bit driver says with a full low range. */
CUresult sim_cuMemAlloc(CUdeviceptr_v1 *out, unsigned size) {
    if (!out || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuMemFree(CUdeviceptr_v1 address) {
    return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (!out || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    *pitch = 0;
    if (element != 4 && element != 8 && element != 16)
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + SIM_UNIT - 1) & ~(SIM_UNIT - 1), size;
    bool wrapped = __builtin_mul_overflow(row, height, &size);
    if (size == 0) /* nothing asked, or so much that it wraps around to nothing */
        return CUDA_ERROR_INVALID_VALUE;
    if (wrapped)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = allocate(out, size);
    if (r == CUDA_SUCCESS)
        *pitch = row;
    return r;
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_guard(ctx);
    if (r == CUDA_SUCCESS && size == 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && size > MANAGED_LIMIT)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    size_t span = (size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    char *area = mmap(NULL, span + SIM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    uintptr_t base = ((uintptr_t)area + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    if (base > (uintptr_t)area)
        munmap(area, base - (uintptr_t)area);
    munmap((void *)(base + span), SIM_PAGE - (base - (uintptr_t)area));
    struct sim_alloc *alloc = sim_range_add(base, size, SIM_MANAGED);
    alloc->span = span;
    alloc->device = ctx->device;
    alloc->sync_memops = true;
    own(alloc, sim_ctx_root(ctx));
    *out = base;
    return sim_unlock_return(CUDA_SUCCESS);
}

/* What cuMemFree may free: exactly the start of something that was allocated and not yet freed. */
static struct sim_alloc *freeable(CUdeviceptr address) {
    struct sim_alloc *alloc = sim_find(address);
    if (!alloc || alloc->base != address || alloc->kind == SIM_HOST || alloc->kind == SIM_VMM || alloc->kind == SIM_IPC)
        return NULL;
    return alloc;
}

CUresult sim_cuMemFree_v2(CUdeviceptr address) {
    sim_lock();
    struct sim_ctx *current;
    CUresult r = sim_current(&current);
    struct sim_alloc *alloc = address ? freeable(address) : NULL;
    if (!alloc) {
        if (r == CUDA_SUCCESS)
            r = sim_capture_guard(current);
        bool sticky = r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_CONTEXT;
        return sim_unlock_return(sticky ? r : address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    }
    struct sim_ctx *ctx = alloc->ctx ? alloc->ctx : sim.device[alloc->device].primary;
    r = ctx ? ctx->sticky : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS && ctx)
        r = sim_capture_guard(ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    if (alloc->kind == SIM_DEVICE || alloc->kind == SIM_MANAGED) {
        alloc->freeing = true;
        ctx->freeing++;
        sim_ctx_drain(ctx);
        ctx->freeing--;
        sim_ctx_look(ctx);
        pthread_cond_broadcast(&sim.done);
        if (ctx->sticky) {
            alloc->freeing = false;
            return sim_unlock_return(ctx->sticky);
        }
    }
    sim_alloc_end(alloc);
    return sim_unlock_return(CUDA_SUCCESS);
}

static CUresult allocate_from(CUdeviceptr *out, size_t size, struct sim_pool *pool, CUstream handle) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r != CUDA_SUCCESS || size == 0)
        return sim_unlock_return(r);
    sim_ctx_look(sim_ctx_root(stream->ctx)); /* the next call says it */
    if (!pool)
        pool = sim.device[stream->ctx->device].current_pool;
    if (stream->capture) {
        struct sim_work node = {.kind = SIM_NODE_ALLOC, .memory = {sim_graph_memory_new(stream->ctx->device, size)}};
        if (!node.memory.alloc)
            return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
        r = sim_capture_add(stream, &node, NULL);
        if (r == CUDA_SUCCESS)
            *out = node.memory.alloc->base;
        else
            sim_pool_free(node.memory.alloc, NULL, NULL);
        return sim_unlock_return(r);
    }
    r = sim_capture_beside(stream);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_op *after = NULL;
    struct sim_alloc *alloc = sim_pool_alloc(pool, size, stream, &after);
    if (!alloc)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    *out = alloc->base;
    if (after) { /* the pool's own dependency: this stream goes on when the memory is idle */
        struct sim_op *op = sim_stream_begin(stream, NULL);
        sim_op_after(op, after);
        sim_stream_end(stream, op);
        sim_op_unref(op);
        sim_op_unref(after);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return allocate_from(out, size, NULL, stream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    sim_lock();
    struct sim_pool *pool = sim_pool_check(handle);
    sim_unlock();
    return pool ? allocate_from(out, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_in_stream(struct sim_alloc *alloc, struct sim_stream *stream) {
    struct sim_work work = {.kind = SIM_RELEASE, .memory = {alloc}};
    struct sim_op *op = NULL;
    if (alloc->kind == SIM_DEVICE) { /* leaves when the stream gets there */
        alloc->freeing = true;
        return sim_submit(stream, &work, NULL);
    }
    alloc->freeing = true;
    work.kind = SIM_SCRIBBLE;
    work.set.dst = alloc->base;
    work.set.width = alloc->span < SIM_SMALL ? alloc->span : SIM_SMALL;
    CUresult r = sim_submit(stream, &work, &op);
    if (r != CUDA_SUCCESS) {
        alloc->freeing = false;
        return r;
    }
    if (alloc->kind == SIM_GRAPH && alloc->graphs > 0)
        sim_op_replace(&alloc->idle, op);
    else
        sim_pool_free(alloc, stream, op);
    sim_op_unref(op);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r != CUDA_SUCCESS || !address)
        return sim_unlock_return(r);
    if (stream->capture) {
        struct sim_alloc *alloc = sim_pages_find(address);
        if (!alloc || alloc->base != address || alloc->kind != SIM_GRAPH)
            return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
        struct sim_work node = {.kind = SIM_NODE_FREE, .memory = {alloc}};
        return sim_unlock_return(sim_capture_add(stream, &node, NULL));
    }
    r = sim_capture_beside(stream);
    struct sim_alloc *alloc = freeable(address);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    if (!alloc)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (alloc->kind == SIM_MANAGED)
        r = CUDA_ERROR_NOT_SUPPORTED;
    else
        r = free_in_stream(alloc, stream);
    return sim_unlock_return(r);
}

CUresult sim_cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_device *device = &sim.device[ctx->device];
    if (free_bytes)
        *free_bytes = (device->total_pages - device->used_pages) * SIM_PAGE;
    if (total)
        *total = device->total_pages * SIM_PAGE;
    return sim_unlock_return(CUDA_SUCCESS);
}
