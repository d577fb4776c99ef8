/*
 * async.h: what the files of the backend async share: the driver's own memory pools under cudaMalloc, one set for each context (async_pool.c), and the
 * allocations from them (async.c).
 */
#ifndef CUPLUG_ASYNC_H
#define CUPLUG_ASYNC_H

#include "shim/context.h"
#include "shim/fence.h"
#include "shim/lock.h"

#include "cache.h"
#include "cuplug_backend.h"
#include "plugin.h" /* its index by address */

/* All that is kept for one context. Never freed: once the context is gone its pools are given back, and another context uses it. */
struct cuplug_async {
    struct cuplug_lock lock; /* guards the blocks, and whose they are */
    struct cuplug_context *context;
    CUdevice device;
    CUmemoryPool plain, ordered; /* cudaMalloc's; cudaMallocAsync's, with the driver's own rules */
    /* Of our own, non-blocking. What is allocated and freed in it is idle, and the plain pool adds no dependencies, so it never has anything to wait for. */
    CUstream stream;
    CUdeviceptr witness; /* a byte of the plain pool: while it is the same allocation, the pools exist; 0 while they are empty */
    unsigned long long witness_id;
    struct cuplug_fence fence;
    struct cuplug_plugin_block *index; /* the program's, and those that wait; of a context that is gone: cudaMalloc's */
    struct cuplug_slab slab;
    struct cuplug_plugin_block *oldest, *newest; /* freed by cudaFree, their old work perhaps not over, by mark */
    size_t waiting;                              /* their bytes */
    struct cuplug_debt unrecorded;
    _Atomic size_t used, reserved; /* bytes given out; in the pools when they were last asked */
    _Atomic unsigned asked;        /* allocations since */
    bool clearing;                 /* left over: a thread gives it back */
    struct cuplug_async *next;     /* left over, or spare */
};

/* The context's, made if need be: then the context, which has been entered and is current, gets its pools. NOT_SUPPORTED, after one line, where the
 * device or the driver has no pools. */
CUresult cuplug_async_of(struct cuplug_context *context, struct cuplug_async **store);
/* … if there is one. */
static inline struct cuplug_async *cuplug_async_there(struct cuplug_context *context) {
    return atomic_load_explicit(&context->cache[CUPLUG_BACKEND_ASYNC], memory_order_acquire);
}

/* Something lies in the pools: from now on a witness does, too. The context is entered and current. */
void cuplug_async_watch(struct cuplug_async *store);
/* Takes it away again, if nothing else is there. */
void cuplug_async_unwatch(struct cuplug_async *store);

/* The context is gone. Pools are the device's, and so is what lies in them (measured of the default pool); they are given back later, when another context
 * of the device is there to do it. */
void cuplug_async_leave(struct cuplug_context *context);
/* Gives back what contexts of this device left. One of its contexts has been entered and is current. */
void cuplug_async_clear(CUdevice device);
/* Is the address in that? */
bool cuplug_async_left(CUdeviceptr pointer);

/* Lets another device, which has access to the context's memory, have it to the plain pool as well. */
void cuplug_async_reach(struct cuplug_async *store, CUdevice by);

/* Bytes that the pools hold from the driver. Legal in a capture; may be asked at any time while the context is there. (What of it is used the driver does not
 * know: it goes on counting what cuMemFree freed, measured.) */
size_t cuplug_async_reserved(const struct cuplug_async *store);
/* Tells the statistics what the pools hold, now and then or (always) now. */
void cuplug_async_count(struct cuplug_async *store, bool always);

/* For registry.c. Is the address in an allocation of the pools that the program has, or freed, or lost with its context? Then *base is where it begins, 0 if
 * it is lost. */
bool cuplug_async_find(CUdeviceptr pointer, CUdeviceptr *base);
/* A device has access to the context's memory. */
void cuplug_async_reached(struct cuplug_context *context, CUdevice by);

#endif
