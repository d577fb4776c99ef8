/*
 * plugin.h: what the files of the backend plugin share. A library in either form is a table of operations (plugin_open.c); around
 * it stand the index of its blocks (plugin_index.c), the freed blocks that it does not have back yet (plugin_pending.c), and the
 * operations that core calls (plugin.c).
 */
#ifndef CUPLUG_PLUGIN_H
#define CUPLUG_PLUGIN_H

#include "shim/context.h"
#include "shim/fence.h"
#include "shim/lock.h"
#include "shim/pages.h"

#include "cuplug_backend.h"

/* An allocation of the library's, from its answer until it has it back. */
struct cuplug_plugin_block {
    uint64_t address;
    size_t size, alignment;
    struct cuplug_plugin_block *left, *right; /* the index */
    struct cuplug_plugin_block *next;         /* in a lane, freed */
    struct cuplug_context *context;
    void *cookie; /* the library's */
    CUstream stream;
    uint64_t stream_id;
    uint64_t mark; /* of the lane's fence */
    CUdevice device;
    enum cuplug_kind kind;
};

/* Is the address in memory of the library's? Then *base is where the block around it begins, 0 if nothing says. */
bool cuplug_plugin_find(void *self, CUdeviceptr pointer, CUdeviceptr *base);

/* Puts a block into the index (*root). If it shares bytes with one that is there, that one is returned and nothing done; else
 * NULL. */
struct cuplug_plugin_block *cuplug_plugin_index_insert(struct cuplug_plugin_block **root, struct cuplug_plugin_block *block);
void cuplug_plugin_index_remove(struct cuplug_plugin_block **root, struct cuplug_plugin_block *block);
/* The block that holds `address`, NULL if none does. */
struct cuplug_plugin_block *cuplug_plugin_index_find(struct cuplug_plugin_block *root, uint64_t address);
void cuplug_plugin_index_each(struct cuplug_plugin_block *root, void (*visit)(struct cuplug_plugin_block *block, void *arg),
                              void *arg);
/* Calls `visit` for each, which may do with the block what it likes; afterwards those for which it returned true are in the
 * index. */
void cuplug_plugin_index_filter(struct cuplug_plugin_block **root, bool (*visit)(struct cuplug_plugin_block *block, void *arg),
                                void *arg);

/* The library. Valid once cuplug_plugin_ready() or cuplug_plugin_opened() was true. */
extern struct cuplug_backend_ops cuplug_plugin_ops; /* a copy: what the library does not have is NULL */
extern void *cuplug_plugin_self;
extern bool cuplug_plugin_pair; /* a pair of functions: it knows devices, but not contexts */

/* Remembers the value of CUPLUG_BACKEND, which is kept. */
void cuplug_plugin_name(const char *spec);
const char *cuplug_plugin_named(void);

/* Opens the library at the first call; false if that failed, which was said. Takes no lock. */
bool cuplug_plugin_ready(void);

/* Was it opened, and its own open is over? Opens nothing. Whoever holds none of its blocks asks before each call of it. */
bool cuplug_plugin_opened(void);
#define CUPLUG_PLUGIN_HAS(operation) (cuplug_plugin_opened() && cuplug_plugin_ops.operation)

/* Says what the library did wrong, in one line, once for each kind of fault. `instead` is what is done about it. */
enum cuplug_plugin_fault {
    CUPLUG_PLUGIN_MISALIGNED,
    CUPLUG_PLUGIN_REPEATED,
    CUPLUG_PLUGIN_OVERLAPS,
    CUPLUG_PLUGIN_STALE,
    CUPLUG_PLUGIN_THREW,
    CUPLUG_PLUGIN_KEPT,
    CUPLUG_PLUGIN_CONTEXT
};
void cuplug_plugin_complain(enum cuplug_plugin_fault fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Calls of the library: the depth guard, its context made current, exceptions caught, errno kept. The context is not entered. */
CUresult cuplug_plugin_call_alloc(const struct cuplug_request *request, struct cuplug_block *block);
CUresult cuplug_plugin_call_free(const struct cuplug_block *block, const struct cuplug_release *release, bool may_wait);
/* Of every context of the device, which is entered. Does nothing while anything captures. */
size_t cuplug_plugin_call_trim(CUdevice device);

/* The lock of index, lanes and slab. */
extern struct cuplug_lock cuplug_plugin_lock;
extern struct cuplug_plugin_block *cuplug_plugin_index;
extern struct cuplug_slab cuplug_plugin_slab;

/* Takes a block out of the index for good; what the library is to be told of it. The lock is held. */
struct cuplug_block cuplug_plugin_leave(struct cuplug_plugin_block *block);
/* Puts it back as it was, as the library did not take it. NULL if it cannot: the context is gone, or there is no memory. The lock is held. */
struct cuplug_plugin_block *cuplug_plugin_stay(const struct cuplug_block *left);

/* Freed blocks wait in a lane, one for each context (stream_id 0) and each stream whose order frees followed. */
struct cuplug_plugin_lane;

/* Queues a freed block behind the work of the lane; NULL without memory for one. The lock is held. */
struct cuplug_plugin_lane *cuplug_plugin_queue(struct cuplug_plugin_block *block, struct cuplug_context *context, CUstream stream,
                                               uint64_t stream_id);
/* After that, without the lock: makes the record that lets the block through. `wait`: the host waits if too much is queued. */
void cuplug_plugin_record(struct cuplug_plugin_lane *lane, uint64_t mark, bool wait);
/* Gives the library what the device is done with; bytes. Asks about the lanes of this context and stream, and now and then about
 * all. `may_wait`: the program's own call would wait here for the context, though not for another. */
size_t cuplug_plugin_hand_over(struct cuplug_context *context, uint64_t stream_id, bool may_wait);

/* In a free: is the device done with everything that was submitted in the context? No if that cannot be had without waiting. */
bool cuplug_plugin_idle(struct cuplug_context *context);

/* For an allocation that found no memory, trying harder each time; bytes given to the library. */
enum cuplug_plugin_effort { CUPLUG_PLUGIN_ASK, CUPLUG_PLUGIN_WAIT, CUPLUG_PLUGIN_RECORD, CUPLUG_PLUGIN_EFFORTS };
size_t cuplug_plugin_reclaim(CUdevice device, enum cuplug_plugin_effort effort);

/* Makes the library's driver calls that were put off, of this context or (NULL) of every one of the device; bytes. They wait for
 * the context's work. */
size_t cuplug_plugin_free_now(CUdevice device, const struct cuplug_context *context);
/* Bytes that such calls are to free on the device. */
size_t cuplug_plugin_put_off(CUdevice device);
/* Is the address in them? To the library they are free already, so nobody has them. */
bool cuplug_plugin_put_off_holds(CUdeviceptr pointer);
void cuplug_plugin_put_off_lost(const struct cuplug_context *context);

/* Bytes freed on the device that the library does not have back. */
size_t cuplug_plugin_pending(CUdevice device);

void cuplug_plugin_lanes_stream_destroyed(struct cuplug_context *context, uint64_t stream_id);
/* Drops what waits in or for a context that is gone. The lock is held; the index is the caller's to clear. */
void cuplug_plugin_lanes_lost(struct cuplug_context *context);

/* Statistics: `by` bytes more are the program's; the library may say itself what it holds. */
void cuplug_plugin_reserved(CUdevice device, int64_t by);

#endif
