/*
 * cuplug_backend.h (installed as cuplug/backend.h): what a backend is: a table of functions that cuplug calls to allocate and
 * free device memory. All that a plugin's author needs; it includes CUDA's driver header and nothing of cuplug's.
 *
 * A plugin is a shared library that exports one function, cuplug_backend_open (at the end of this file), and is named by its
 * path, CUPLUG_BACKEND=/path/plugin.so:options. It is opened with RTLD_NOW | RTLD_LOCAL at the program's first allocation, and
 * never closed.
 *
 * What cuplug has dealt with before it calls: NULL and zero sizes, pointers that it did not hand out, second frees, statistics,
 * graph capture (memory allocated on a capturing stream stays the driver's).
 *
 * Threads. Any function may be called from any thread, several at once. No lock of cuplug's is held, so a function may block,
 * take locks of its own and call CUDA. It must not wait for another thread of the program, which may be waiting for this one.
 *
 * CUDA calls. What a function allocates and frees by CUDA calls passes to the driver and is not counted as the program's; a free
 * of memory that the program owns is that memory's free. In alloc and free the context of the memory is current, and what was
 * current before is so again afterwards, whatever the function set. While a stream captures, a synchronous CUDA call of an alloc
 * may be refused, as it would have been to the program. cuMemFree and cudaFree wait for the device; where the program's own call
 * would not, they are put off and made later. A thread of the plugin's own is a thread of the program to cuplug: what it
 * allocates comes from the plugin.
 *
 * Errors are CUresult. Out of memory is CUDA_ERROR_OUT_OF_MEMORY: cuplug then waits for freed memory, calls trim, and asks again
 * before the program hears of it. CUDA_ERROR_NOT_SUPPORTED leaves this allocation to the driver. Anything else goes to the
 * program as it is. A plugin must not print to stdout, exit or abort. A C++ exception that leaves alloc counts as out of memory,
 * one that leaves free as done (one that leaves open or trim: it failed), with one line on stderr, where the library uses the
 * shared unwinder (libgcc_s). The other functions must not throw, and one that leaves something declared noexcept ends the
 * process.
 *
 * Versions. Every structure has a struct_size: how much of it the side that filled it knew. Members are only ever added at the
 * end; their meaning, or their order, changes only with CUPLUG_BACKEND_ABI.
 *   - An older plugin, a newer cuplug: what lies behind the table's struct_size counts as NULL (flags as 0), and in what it is
 *     passed the plugin sees what it knows.
 *   - A newer plugin, an older cuplug: functions that cuplug does not know are not called. Before it reads a member of a request,
 *     block or release that was added after version 1's first release, the plugin looks whether struct_size covers it.
 *   - Another CUPLUG_BACKEND_ABI: the plugin is not used (one line on stderr; the driver serves).
 */
#ifndef CUPLUG_BACKEND_H
#define CUPLUG_BACKEND_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUPLUG_BACKEND_ABI 1

enum cuplug_kind {
    CUPLUG_SYNC,    /* cuMemAlloc, cuMemAllocPitch: usable at once on every stream. As a release: after the context's work. */
    CUPLUG_ASYNC,   /* cuMemAllocAsync: in order with `stream`. As a release: after all earlier work of `stream`. */
    CUPLUG_MANAGED, /* cuMemAllocManaged: only ever of the driver */
    CUPLUG_POOLED,  /* cuMemAllocFromPoolAsync: only ever of the driver */
    CUPLUG_IDLE     /* as a release: the device is done with the block, it may be used again at once by anybody */
};

/* Opaque: an identity. One per CUDA context, the same object from its creation to its end, never used for another. */
struct cuplug_context;

/* What alloc is asked for. Valid during the call. */
struct cuplug_request {
    uint32_t struct_size;
    enum cuplug_kind kind; /* CUPLUG_SYNC or CUPLUG_ASYNC */
    size_t size;           /* bytes, > 0, exactly what the program asked for (pitched memory: pitch * height) */
    size_t alignment;      /* bytes, a power of two, at least 256 (CUDA's promise); an answer that has less is given back */
    CUdevice device;       /* the ordinal */
    struct cuplug_context *context;
    CUstream stream;        /* CUPLUG_ASYNC only; never 0: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD for the default ones */
    uint64_t stream_id;     /* unique over the life of the process, unlike the handle; 0 for CUPLUG_SYNC */
    CUcontext cuda_context; /* the context's handle; it is current */
};

/* An allocation. alloc gets it filled but for pointer and cookie; free gets what alloc left. Valid during the call. */
struct cuplug_block {
    uint32_t struct_size;
    enum cuplug_kind kind; /* as requested, and so are the rest */
    CUdeviceptr pointer;   /* set by alloc */
    void *cookie;          /* set by alloc (anything, NULL too), given back to free */
    size_t size;
    size_t alignment;
    CUdevice device;
    struct cuplug_context *context;
    CUstream stream; /* 0 for CUPLUG_SYNC, and once the stream was destroyed */
    uint64_t stream_id;
    CUcontext cuda_context;
};

/* What orders a free against the block's earlier use. Valid during the call. */
struct cuplug_release {
    uint32_t struct_size;
    enum cuplug_kind kind; /* CUPLUG_IDLE; with CUPLUG_BACKEND_ORDERS_FREES also CUPLUG_SYNC and CUPLUG_ASYNC */
    CUstream stream;       /* CUPLUG_ASYNC: the stream of the free, named as in a request; not necessarily the allocation's */
    uint64_t stream_id;
    struct cuplug_context *context; /* CUPLUG_ASYNC: the stream's, perhaps not the block's */
};

/* A flag: the plugin itself keeps a freed block from its next owner until the release's order allows it, and gets each free at
 * once. Without it cuplug does, and every release is CUPLUG_IDLE; it may then come later than the program's free and from another
 * thread, and not at all if the process ends before. */
#define CUPLUG_BACKEND_ORDERS_FREES 1u

struct cuplug_backend_ops {
    uint32_t abi_version; /* CUPLUG_BACKEND_ABI */
    uint32_t struct_size; /* sizeof(struct cuplug_backend_ops) */
    const char *name;     /* for messages */

    /* `self` is what open stored, NULL without an open. The block is the plugin's to hand out: no byte of it in an allocation
     * that was not yet freed. */
    CUresult (*alloc)(void *self, const struct cuplug_request *request, struct cuplug_block *block);
    /* An error means that the block is still allocated; the program hears it if the free was its own call. If not, it is asked again later. */
    CUresult (*free)(void *self, const struct cuplug_block *block, const struct cuplug_release *release);

    /* Each of the rest may be NULL. */

    /* Once, before any other function, with what stood behind the name ("" for nothing; the string lives as long as the process).
     * On failure the process uses the driver. */
    CUresult (*open)(const char *options, void **self);
    /* Does the address lie in memory that this backend cuts allocations from, live or not? Not 0: the driver is never asked to
     * free it. Worth having for whoever keeps freed memory: it is what catches a second free of a block that the backend has
     * taken back. Must not call CUDA. */
    int (*owns)(void *self, CUdeviceptr pointer);
    /* What cudaMemGetInfo should call free: bytes that allocations in the context can get from this backend, where the device
     * itself has `free` left. NULL: so many. */
    size_t (*available)(void *self, struct cuplug_context *context, size_t free);
    /* Memory is short on the device: gives idle memory of this context, which is current, back to the driver, waiting for the
     * device if need be; bytes given. Called for each context of the device in turn. Another context's memory is to be left
     * alone: that context may be ending meanwhile. (Of its own backends cuplug asks for every context at once: NULL.) */
    size_t (*trim)(void *self, CUdevice device, struct cuplug_context *context);
    /* Another context exists from now on: what is handed out may no longer rest on a wait that orders one context. */
    void (*context_shared)(void *self, struct cuplug_context *context);
    /* The context and all memory of it are gone (destroyed, or reset): forget them, make no CUDA call for them. Blocks of it are
     * not freed. */
    void (*context_lost)(void *self, struct cuplug_context *context);
    /* The stream is about to be destroyed; its work may go on, and its handle may soon name another stream. Called once for each
     * context of the process. */
    void (*stream_destroyed)(void *self, struct cuplug_context *context, CUstream stream, uint64_t stream_id);

    uint64_t flags; /* CUPLUG_BACKEND_… */
    /* Usage: bytes that the backend holds from the driver on this device now, in use or not; the statistics show them as
     * reserved_bytes. Called after each alloc and free; must not call CUDA. NULL: what is allocated counts as reserved. */
    size_t (*reserved)(void *self, CUdevice device);
};

/* The one function that a plugin exports. Returns its table, which lives as long as the process; NULL if it cannot serve a cuplug
 * of that CUPLUG_BACKEND_ABI. Does nothing else: what takes time or may fail belongs into the table's open. */
typedef const struct cuplug_backend_ops *cuplug_backend_open_fn(uint32_t abi_version);
#ifdef CUPLUG_PLUGIN /* define it in the plugin: the declaration, exported also under -fvisibility=hidden */
__attribute__((visibility("default"))) cuplug_backend_open_fn cuplug_backend_open;
#endif

#ifdef __cplusplus
}
#endif

#endif
