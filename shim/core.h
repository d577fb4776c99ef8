/*
 * core.h: what an allocation and a free are, whichever front they came through: backend, live table, statistics. No lock is held across
 * a backend's functions.
 */
#ifndef CUPLUG_CORE_H
#define CUPLUG_CORE_H

#include "real.h"

#include "backends/registry.h"
#include "context.h"
#include "live.h"

#include <stdbool.h>
#include <stddef.h>

/* Chooses the backend from the options. Once, from init. */
void cuplug_core_init(void);

/* The chosen backend's number. */
int cuplug_core_chosen(void);

/* Is what it may have live limited, or does another stand in for it? Then the driver is not asked past it. */
bool cuplug_core_composed(void);

/* Does the chosen backend answer without the driver, so that the runtime front may serve calls itself? */
bool cuplug_core_fast(void);

/* CUPLUG_STRICT and an option was refused: no allocation succeeds. */
bool cuplug_core_refuses(void);

/* The backend for a synchronous allocation in `context` (NULL or not served: direct), or for a stream-ordered one. */
int cuplug_core_route(const struct cuplug_context *context, bool async);

/* Allocates from `backend` in request->context (never NULL), enters the block into the live table and counts. On failure *pointer is 0. */
CUresult cuplug_core_alloc(int backend, const struct cuplug_request *request, CUdeviceptr *pointer);

/* The same for synchronous memory of the context, from the backend that is for it: the common case, which takes a shorter way. */
CUresult cuplug_core_alloc_plain(struct cuplug_context *context, size_t size, CUdeviceptr *pointer);
/* The same for stream-ordered memory. */
CUresult cuplug_core_alloc_ordered(const struct cuplug_request *request, CUdeviceptr *pointer);

/* Counts an allocation that the driver made at the program's own request; a failed one too. Then it is live, or gone again if the shim has no
 * memory for its record (the result says so). */
CUresult cuplug_core_adopt(CUresult result, enum cuplug_kind kind, size_t size, CUstream stream, CUdeviceptr *pointer);

/* What a free came to. */
enum cuplug_freed {
    CUPLUG_FREED,     /* done, *result is its result */
    CUPLUG_NOT_OURS,  /* unknown: the caller passes it to the driver */
};

/* Frees a live pointer, also where *result is the error that its context keeps after a fault. release->kind says in which order. With `fast`, a record whose free needs the driver is left alone and not ours. */
enum cuplug_freed cuplug_core_free(CUdeviceptr pointer, const struct cuplug_release *release, bool fast, CUresult *result);

/* A free when all is over: counts it if `pointer` was live. True if that is all; false: the caller passes it on, as ever. */
bool cuplug_core_freed_late(CUdeviceptr pointer);

/* Does `pointer` lie in memory that a backend cuts allocations from? Then the driver must not be asked to free or share it. */
bool cuplug_core_owned(CUdeviceptr pointer);

/* Whose an address is, as far as the program may know. */
enum cuplug_whose {
    CUPLUG_THE_DRIVERS, /* the driver has the exact answer */
    CUPLUG_A_BACKENDS,  /* in a live allocation that a backend cut from a larger one of the driver's */
    CUPLUG_NOBODYS      /* in such a larger one, but in no allocation: to the driver it is live, to the program it must not be */
};

/* Whose is `pointer`? A backend's: *base is where its allocation begins, and *record says the rest. Waits for nobody; legal in a capture. */
enum cuplug_whose cuplug_core_find(CUdeviceptr pointer, CUdeviceptr *base, struct cuplug_record *record);

/* An identity for `stream` in `context` that no other stream, living or dead, has; 0 if the driver cannot be asked
 * (no stream, or one that captures). */
uint64_t cuplug_core_stream_id(CUstream stream);

/* A stream is about to end, or has ended: its handle may be another's soon. Whoever destroys it. */
void cuplug_core_stream_ends(void);

/* A stream's death, before the driver is told. */
void cuplug_core_stream_destroyed(CUstream stream);

/* Bytes that allocations in the context can get, where its device has `free` left. */
size_t cuplug_core_available(struct cuplug_context *context, size_t free);

/* Gives what backends hold idle on the device back to the driver, for which it waits; bytes. What no free recorded, only if there is nothing else, as
 * a record made for it also covers work submitted after the free. */
size_t cuplug_core_trim(CUdevice device);
/* All of it. */
size_t cuplug_core_trim_all(CUdevice device);

/* After `result` of a driver allocation of `size` bytes on `device`: true if memory was given back, so that trying again is worth it; ask again if that fails, too. */
bool cuplug_core_retry(CUresult result, CUdevice device, size_t size);

/* The program set the device's current memory pool, to one of its `own` or back to the default: stream-ordered allocations are the driver's while it is
 * its own. */
void cuplug_core_pool_set(CUdevice device, bool own);
/* It gave others access to the pool that they come from: they are the driver's from now on. */
void cuplug_core_pool_shared(CUdevice device);

/* What the device's default memory pool would have of what backends serve: stream-ordered allocations, and the memory that they could have at once. Bytes
 * now and at most since the figure was forgotten last. False if no backend ever served a stream-ordered allocation there. */
struct cuplug_usage {
    size_t used, used_high, reserved, reserved_high;
};
bool cuplug_core_pool_usage(CUdevice device, struct cuplug_usage *usage);
void cuplug_core_pool_forget_high(CUdevice device, bool used);

/* The program gave a device access to the memory of this context, what is allocated later included. It stays with it: nobody relies on a fault. */
void cuplug_core_reached(struct cuplug_context *context, CUdevice by);

/* From context.c. */
void cuplug_core_context_shared(struct cuplug_context *context);
void cuplug_core_context_lost(struct cuplug_context *context);

#endif
