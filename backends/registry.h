/*
 * registry.h: the backends there are, by number and by name.
 */
#ifndef CUPLUG_REGISTRY_H
#define CUPLUG_REGISTRY_H

#include "cuplug_backend.h"

#include <stdbool.h>

enum cuplug_backend_number { CUPLUG_BACKEND_DIRECT, CUPLUG_BACKEND_POOL, CUPLUG_BACKEND_ARENA, CUPLUG_BACKEND_MANAGED, CUPLUG_BACKEND_ASYNC, CUPLUG_BACKEND_PLUGIN, CUPLUG_BACKEND_COUNT };

extern const struct cuplug_backend_ops cuplug_backend_direct, cuplug_backend_pool, cuplug_backend_arena, cuplug_backend_managed, cuplug_backend_async,
    cuplug_backend_plugin;

/* The backend of that number, NULL past the last. */
const struct cuplug_backend_ops *cuplug_backend(int number);

/* What that backend's open stored. */
void *cuplug_backend_self(int number);

/* Does `pointer` lie in memory that the backend cuts allocations from? Then *base is where the block around it begins, live or not, and 0 if that is not
 * known. Never so with direct, whose allocations the driver can tell apart itself. */
bool cuplug_backend_locate(int number, CUdeviceptr pointer, CUdeviceptr *base);

/* Stream-ordered allocations: bytes now, the most so far, and whether there ever were any. */
struct cuplug_ordered {
    size_t now, high;
    bool any;
};

/* What the backend has of them on the device, if it counts them itself (the caching ones do, under the lock that they hold anyway); else false.
 * `forget`: from now on the most so far is what there is now. */
bool cuplug_backend_ordered(int number, CUdevice device, bool forget, struct cuplug_ordered *ordered);

/* Adds the gauges of stats.def to the figures of a backend and a device, -1: of all of them. Gives up on what is locked for long, as it is called at the process's
 * end, too. */
struct cuplug_stats;
void cuplug_backend_gauges(int number, CUdevice device, struct cuplug_stats *stats);

/* Another process will use this live block: all that was ordered before it is done first, and once it is freed it is kept from others for a while (seconds), as
 * that process may not have closed it. False if its context ended. A plugin hears nothing of it. */
struct cuplug_record;
bool cuplug_backend_share(int number, const struct cuplug_record *record);

/* Another device has access to the memory of this context from now on (cuCtxEnablePeerAccess), which the driver gives to cudaMalloc's memory only. */
void cuplug_backend_reached(int number, struct cuplug_context *context, CUdevice by);

/* The whole of the common allocation, and of the common free: of a small block that the calling thread keeps, or may keep, with its record in the table and its
 * place in the statistics. False, or NULL: the long way. The free returns the block's context. First cudaMalloc's and cudaFree's, then in the order of a stream. */
bool cuplug_backend_take_kept(int number, struct cuplug_context *context, size_t size, CUdeviceptr *pointer);
struct cuplug_context *cuplug_backend_keep_freed(CUdeviceptr pointer);
bool cuplug_backend_take_in_order(int number, struct cuplug_context *context, size_t size, uint64_t stream_id, CUdeviceptr *pointer);
struct cuplug_context *cuplug_backend_keep_freed_in_order(CUdeviceptr pointer, const struct cuplug_context *context, uint64_t stream_id);

/* The calling thread ends: what it kept for itself goes to others. */
struct cuplug_kept;
void cuplug_backend_thread_ends(struct cuplug_kept *kept);

/* A plugin's own cuMemFree, in a call that must not wait for the device: made later (plugin_later.c). */
CUresult cuplug_plugin_free_later(CUdeviceptr pointer);

/* Opens the backend of a value that the options accepted: name, name:options, or a library (which opens with its first allocation). If that fails: one line on stderr, and direct. */
int cuplug_backend_choose(const char *spec);

#endif
