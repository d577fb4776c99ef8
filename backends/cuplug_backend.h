/*
 * cuplug_backend.h: what a backend is: a table of functions that the core calls to allocate and free device memory.
 *
 * The core has already dealt with NULL, zero sizes, unknown pointers, double frees, statistics and the record of what is live. It calls with
 * no lock held, from any thread, with the request's context current in alloc (free: perhaps another or none). Errors are CUresult;
 * out of memory is CUDA_ERROR_OUT_OF_MEMORY. A backend must not print, exit or abort.
 */
#ifndef CUPLUG_BACKEND_H
#define CUPLUG_BACKEND_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define CUPLUG_BACKEND_ABI 1

enum cuplug_kind {
    CUPLUG_SYNC,    /* cuMemAlloc, cuMemAllocPitch: usable at once on every stream. As a release: after all earlier work of the context. */
    CUPLUG_ASYNC,   /* cuMemAllocAsync: in order with `stream`. As a release: after all earlier work of `stream`. */
    CUPLUG_MANAGED, /* cuMemAllocManaged: only ever of the driver */
    CUPLUG_POOLED   /* cuMemAllocFromPoolAsync: only ever of the driver */
};

struct cuplug_context; /* opaque; one per CUDA context, the same object from its creation to its end */

struct cuplug_request {
    uint32_t struct_size;
    enum cuplug_kind kind;
    size_t size;      /* bytes, > 0 */
    size_t alignment; /* bytes, a power of two; at least this much */
    CUdevice device;
    struct cuplug_context *context;
    CUstream stream;    /* CUPLUG_ASYNC only; never 0: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD for the default ones */
    uint64_t stream_id; /* unique over the life of the process, 0 for CUPLUG_SYNC */
};

struct cuplug_block {
    CUdeviceptr pointer; /* set by alloc */
    void *cookie;        /* set by alloc, given back to free */
    size_t size;         /* as requested */
    enum cuplug_kind kind; /* as requested */
    CUdevice device;
    struct cuplug_context *context;
};

/* What orders a free against the block's earlier use. */
struct cuplug_release {
    uint32_t struct_size;
    enum cuplug_kind kind; /* CUPLUG_SYNC or CUPLUG_ASYNC */
    CUstream stream;       /* CUPLUG_ASYNC: as in the request */
    uint64_t stream_id;
    struct cuplug_context *context; /* CUPLUG_ASYNC: the stream's, perhaps not the block's; NULL if unknown */
};

struct cuplug_backend_ops {
    uint32_t abi_version; /* CUPLUG_BACKEND_ABI */
    uint32_t struct_size; /* sizeof(struct cuplug_backend_ops) */
    const char *name;

    /* `self` is what open stored, NULL without an open. An alloc that fails with CUDA_ERROR_NOT_SUPPORTED leaves the device to direct. */
    CUresult (*alloc)(void *self, const struct cuplug_request *request, struct cuplug_block *block);
    CUresult (*free)(void *self, const struct cuplug_block *block, const struct cuplug_release *release);

    /* Each of the rest may be NULL. */

    /* Once, before anything else, with what stood behind the name in CUPLUG_BACKEND ("" for nothing). On failure the process uses direct. */
    CUresult (*open)(const char *options, void **self);
    /* Does the address lie in memory that this backend cuts allocations from, live or not? */
    int (*owns)(void *self, CUdeviceptr pointer);
    /* Bytes that allocations in the context can get from this backend, where the device has `free` left; NULL: so many. */
    size_t (*available)(void *self, struct cuplug_context *context, size_t free);
    /* Gives idle memory back to the driver, waiting for the device; bytes given. */
    size_t (*trim)(void *self, CUdevice device);
    /* Another context exists from now on: what is handed out may no longer rest on a wait that orders one context. */
    void (*context_shared)(void *self, struct cuplug_context *context);
    /* The context's memory is gone: forget it, make no driver call for it. */
    void (*context_lost)(void *self, struct cuplug_context *context);
    /* The stream is about to be destroyed; its work may go on. */
    void (*stream_destroyed)(void *self, struct cuplug_context *context, CUstream stream, uint64_t stream_id);
};

#endif
