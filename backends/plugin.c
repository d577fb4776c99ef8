/*
 * plugin.c: a backend in a library of the user's. Owns the index of the library's blocks, in which every answer of it is looked
 * up before the program sees it, and from which a free takes what the allocation had. See plugin.h for the other files. No lock
 * is held while the library is called.
 */
#include "plugin.h"

#include "config/options.h"
#include "registry.h"
#include "shim/capture.h"
#include "shim/live.h"
#include "shim/stats.h"

#include <sched.h>

enum { ALIGNMENT = 256 }; /* what CUDA promises of every allocation */
static const size_t put_off_most = (size_t)64
                                   << 20; /* of the library's frees, before a moment is looked for in which they need not wait */

struct cuplug_lock cuplug_plugin_lock;
struct cuplug_plugin_block *cuplug_plugin_index;
struct cuplug_slab cuplug_plugin_slab = {.object_size = sizeof(struct cuplug_plugin_block)};

static size_t stream_blocks;     /* how many blocks of a stream's there are; cuplug_plugin_lock */
static _Atomic bool lost_memory; /* a context went away: the library may hold memory that no longer exists, without knowing */

static struct cuplug_block described(const struct cuplug_plugin_block *block) {
    return (struct cuplug_block){
        .pointer = block->address,
        .cookie = block->cookie,
        .size = block->size,
        .kind = block->kind,
        .device = block->device,
        .context = block->context,
        .struct_size = sizeof(struct cuplug_block),
        .alignment = block->alignment,
        .stream = block->stream,
        .stream_id = block->stream_id,
        .cuda_context = block->context->handle,
    };
}

struct cuplug_block cuplug_plugin_leave(struct cuplug_plugin_block *block) {
    struct cuplug_block left = described(block);

    cuplug_plugin_index_remove(&cuplug_plugin_index, block);
    stream_blocks -= block->kind == CUPLUG_ASYNC;
    cuplug_slab_give(&cuplug_plugin_slab, block);
    return left;
}

/* Puts a block into the index. NULL if its context is gone, without memory, or if it shares bytes with one that is there: then *other is that. The lock
 * is held. */
static struct cuplug_plugin_block *arrive(const struct cuplug_block *block, struct cuplug_plugin_block **other) {
    struct cuplug_plugin_block *arrived = cuplug_context_gone(block->context) ? NULL : cuplug_slab_take(&cuplug_plugin_slab);

    *other = NULL;
    if (!arrived)
        return NULL;
    *arrived = (struct cuplug_plugin_block){
        .address = block->pointer,
        .cookie = block->cookie,
        .size = block->size,
        .alignment = block->alignment,
        .context = block->context,
        .device = block->device,
        .kind = block->kind,
        .stream = block->stream,
        .stream_id = block->stream_id,
    };
    *other = cuplug_plugin_index_insert(&cuplug_plugin_index, arrived);
    if (*other) {
        cuplug_slab_give(&cuplug_plugin_slab, arrived);
        return NULL;
    }
    stream_blocks += arrived->kind == CUPLUG_ASYNC;
    return arrived;
}

struct cuplug_plugin_block *cuplug_plugin_stay(const struct cuplug_block *left) {
    struct cuplug_plugin_block *other; /* it was handed out again all the same */

    return arrive(left, &other);
}

void cuplug_plugin_reserved(CUdevice device, int64_t by) {
    static _Atomic int64_t held[CUPLUG_STATS_DEVICES];

    if (CUPLUG_PLUGIN_HAS(reserved) && device >= 0 && device < CUPLUG_STATS_DEVICES) {
        int64_t now = (int64_t)cuplug_plugin_ops.reserved(cuplug_plugin_self, device);

        by = now - atomic_exchange(&held[device], now);
    }
    CUPLUG_LEVEL(CUPLUG_BACKEND_PLUGIN, device, reserved_bytes, by);
}

/* Once the library may be unaware of a loss: does the driver know the memory, and not as somebody else's? */
static bool exists(const struct cuplug_request *request, CUdeviceptr pointer) {
    struct cuplug_record record;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result;

    if (!atomic_load_explicit(&lost_memory, memory_order_relaxed) || !cuplug_context_push(request->context))
        return true;
    result = cuplug_real.cuMemGetAddressRange_v2(&base, &size, pointer);
    cuplug_context_pop();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_NOT_FOUND)
        return true; /* that says nothing about the address */
    /* What goes with a context that ends at this moment is no fault of the library's: the memory, or the one that was there before. */
    if (result != CUDA_SUCCESS || pointer - base + request->size > size)
        return !cuplug_context_live(request->context);
    return !cuplug_live_find(base, &record) || record.backend == CUPLUG_BACKEND_PLUGIN || !cuplug_context_live(record.context);
}

/* Hands an answer back that is of no use. */
static void decline(const struct cuplug_block *block) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_IDLE};

    cuplug_plugin_call_free(block, &release, false);
}

static const char *instead(void) {
    return cuplug_options.strict ? "the allocation fails" : "the driver serves";
}

/* Enters the library's answer into the index: CUDA_SUCCESS and the block, or why not: NOT_SUPPORTED if `clash` is in
 * the way. */
static CUresult enter(const struct cuplug_block *answer, struct cuplug_plugin_block **entered, struct cuplug_plugin_block *clash) {
    struct cuplug_plugin_block *other;
    CUresult result = CUDA_SUCCESS;

    cuplug_lock(&cuplug_plugin_lock);
    *entered = arrive(answer, &other);
    if (other)
        *clash = *other;
    if (!*entered)
        result = other                                   ? CUDA_ERROR_NOT_SUPPORTED
                 : cuplug_context_gone(answer->context) ? CUDA_ERROR_INVALID_CONTEXT
                                                         : CUDA_ERROR_OUT_OF_MEMORY;
    cuplug_unlock(&cuplug_plugin_lock);
    return result;
}

/* Looks the library's answer over. If there is fault to find, the driver serves instead (CUPLUG_STRICT: nobody does). */
static CUresult accept(const struct cuplug_request *request, struct cuplug_block *answer) {
    unsigned long long address = answer->pointer;
    struct cuplug_plugin_block *block, clash = {0};
    CUresult result;

    if (address & (request->alignment - 1)) {
        cuplug_plugin_complain(CUPLUG_PLUGIN_MISALIGNED,
                               "an allocation of %zu bytes is at %#llx, no multiple of %zu; given back, %s", request->size,
                               address, request->alignment, instead());
        decline(answer);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!exists(request, address)) {
        cuplug_plugin_complain(
            CUPLUG_PLUGIN_STALE,
            "an allocation of %zu bytes is at %#llx, where the driver has none since a device reset; not used, %s", request->size,
            address, instead());
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    /* A block of a context that ends at this moment is in nobody's way, once we have been told. */
    while ((result = enter(answer, &block, &clash)) == CUDA_ERROR_NOT_SUPPORTED && !cuplug_context_live(clash.context))
        sched_yield();
    if (result == CUDA_ERROR_NOT_SUPPORTED && clash.address == address)
        cuplug_plugin_complain(CUPLUG_PLUGIN_REPEATED,
                               "an allocation of %zu bytes is at %#llx, where one of %zu bytes still is; not used, %s",
                               request->size, address, clash.size, instead());
    else if (result == CUDA_ERROR_NOT_SUPPORTED)
        cuplug_plugin_complain(CUPLUG_PLUGIN_OVERLAPS,
                               "an allocation of %zu bytes is at %#llx and overlaps one of %zu bytes at %#llx; not used, %s",
                               request->size, address, clash.size, (unsigned long long)clash.address, instead());
    else if (result == CUDA_ERROR_OUT_OF_MEMORY)
        decline(answer); /* unlike one that clashes: to the library that may be the block of the other */
    answer->cookie = block;
    return result;
}

/* In the program's own capture mode, but a stream-ordered allocation succeeds beside the capture of another stream, whatever the
 * library does for it. */
static CUresult ask(const struct cuplug_request *request, struct cuplug_block *block) {
    bool relaxed = request->kind == CUPLUG_ASYNC && cuplug_capturing();
    CUstreamCaptureMode mode = relaxed ? cuplug_capture_relax() : CU_STREAM_CAPTURE_MODE_GLOBAL;
    struct cuplug_block answer = *block; /* the library's to write; two members of it are looked at */
    CUresult result;

    answer.pointer = 0;
    answer.cookie = NULL;
    result = cuplug_plugin_call_alloc(request, &answer);
    if (relaxed)
        cuplug_capture_restore(mode);
    block->pointer = answer.pointer;
    block->cookie = answer.cookie;
    if (result == CUDA_SUCCESS && !block->pointer)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/* Could waiting help? Nobody is made to wait for a size that the device does not have. */
static bool hopeless(const struct cuplug_request *request) {
    size_t total = 0;

    return cuplug_real.cuDeviceTotalMem_v2(&total, request->device) == CUDA_SUCCESS && request->size > total;
}

/* A pair of functions is told a device, and what it allocates is its primary context's. Other contexts are the driver's. */
static bool served(const struct cuplug_request *request) {
    bool fine = !cuplug_plugin_pair || request->context->origin == CUPLUG_CONTEXT_PRIMARY;

    if (!fine && cuplug_options.strict)
        cuplug_plugin_complain(CUPLUG_PLUGIN_CONTEXT,
                               "a pair of functions does not serve contexts made by cuCtxCreate; allocations there fail");
    return fine;
}

static CUresult plugin_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    struct cuplug_request wanted = *request;
    struct cuplug_block answer;
    CUresult result;

    (void)self;
    if (!cuplug_plugin_ready() || !served(request))
        return CUDA_ERROR_NOT_SUPPORTED;
    wanted.struct_size = sizeof wanted;
    wanted.alignment = request->alignment > ALIGNMENT ? request->alignment : ALIGNMENT;
    wanted.cuda_context = request->context->handle;
    answer = (struct cuplug_block){
        .size = wanted.size,
        .kind = wanted.kind,
        .device = wanted.device,
        .context = wanted.context,
        .struct_size = sizeof answer,
        .alignment = wanted.alignment,
        .stream = wanted.stream,
        .stream_id = wanted.stream_id,
        .cuda_context = wanted.cuda_context,
    };
    cuplug_plugin_hand_over(request->context, request->stream_id, false);
    result = ask(&wanted, &answer);
    for (int effort = 0; effort < CUPLUG_PLUGIN_EFFORTS && result == CUDA_ERROR_OUT_OF_MEMORY && !hopeless(request); effort++)
        if (cuplug_plugin_reclaim(request->device, (enum cuplug_plugin_effort)effort))
            result = ask(&wanted, &answer);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !hopeless(request) && cuplug_plugin_call_trim(request->device))
        result = ask(&wanted, &answer);
    if (result == CUDA_SUCCESS)
        result = accept(&wanted, &answer);
    if (result != CUDA_SUCCESS)
        return result;
    cuplug_plugin_reserved(request->device, (int64_t)request->size);
    block->pointer = answer.pointer;
    block->cookie = answer.cookie;
    return CUDA_SUCCESS;
}

/* To the library at once. The block is out of the index, and back in it if the library does not take it. */
static CUresult pass(struct cuplug_plugin_block *freed, const struct cuplug_release *release) {
    struct cuplug_block block = described(freed);
    CUresult result = cuplug_plugin_call_free(&block, release, release->kind == CUPLUG_SYNC && block.kind == CUPLUG_SYNC);

    cuplug_lock(&cuplug_plugin_lock);
    if (result == CUDA_SUCCESS || cuplug_context_gone(block.context) || cuplug_plugin_index_insert(&cuplug_plugin_index, freed)) {
        result = CUDA_SUCCESS;
        stream_blocks -= freed->kind == CUPLUG_ASYNC;
        cuplug_slab_give(&cuplug_plugin_slab, freed);
    }
    cuplug_unlock(&cuplug_plugin_lock);
    if (result == CUDA_SUCCESS)
        cuplug_plugin_reserved(block.device, -(int64_t)block.size);
    return result;
}

static CUresult plugin_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    bool ordered = cuplug_plugin_ops.flags & CUPLUG_BACKEND_ORDERS_FREES, at_once, waits;
    bool async = release->kind == CUPLUG_ASYNC && release->context;
    struct cuplug_plugin_block *freed = block->cookie;
    struct cuplug_context *context = async ? release->context : block->context;
    struct cuplug_plugin_lane *lane = NULL;
    struct cuplug_release how = *release;
    uint64_t mark = 0;

    (void)self;
    cuplug_lock(&cuplug_plugin_lock);
    if (cuplug_context_gone(block->context)) { /* it ended just now, and took the record along */
        cuplug_unlock(&cuplug_plugin_lock);
        return CUDA_SUCCESS;
    }
    /* cudaFree of stream-ordered memory waits for nothing: the program has seen to its use. */
    if (release->kind == CUPLUG_SYNC && freed->kind == CUPLUG_ASYNC && !ordered && !cuplug_capturing())
        how.kind = CUPLUG_IDLE;
    at_once = ordered || cuplug_plugin_options.reuse || how.kind == CUPLUG_IDLE;
    if (at_once)
        cuplug_plugin_index_remove(&cuplug_plugin_index, freed); /* before the library may hand it out again */
    else if ((lane = cuplug_plugin_queue(freed, context, release->stream, async ? release->stream_id : 0)))
        mark = freed->mark;
    cuplug_unlock(&cuplug_plugin_lock);
    if (at_once)
        return pass(freed, &how);
    if (!lane)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (cuplug_self.depth) /* the library itself frees, in a call of ours that may have entered the context: a later record covers
                              this */
        return CUDA_SUCCESS;
    waits = !async && block->kind == CUPLUG_SYNC; /* natively this free does */
    cuplug_plugin_record(lane, mark, waits);
    cuplug_plugin_hand_over(context, async ? release->stream_id : 0, waits);
    if (!waits && cuplug_plugin_put_off(block->device) > put_off_most && cuplug_plugin_idle(block->context))
        cuplug_plugin_free_now(block->device, block->context);
    return CUDA_SUCCESS;
}

static int plugin_owns(void *self, CUdeviceptr pointer) {
    bool found;

    (void)self;
    cuplug_lock(&cuplug_plugin_lock);
    found = cuplug_plugin_index_find(cuplug_plugin_index, pointer) != NULL;
    cuplug_unlock(&cuplug_plugin_lock);
    if (!found)
        found = cuplug_plugin_put_off_holds(pointer);
    if (!found && CUPLUG_PLUGIN_HAS(owns)) {
        cuplug_self.depth++;
        found = cuplug_plugin_ops.owns(cuplug_plugin_self, pointer) != 0;
        cuplug_self.depth--;
    }
    return found;
}

bool cuplug_plugin_find(void *self, CUdeviceptr pointer, CUdeviceptr *base) {
    struct cuplug_plugin_block *block;

    cuplug_lock(&cuplug_plugin_lock);
    block = cuplug_plugin_index_find(cuplug_plugin_index, pointer);
    *base = block ? block->address : 0;
    cuplug_unlock(&cuplug_plugin_lock);
    return block || plugin_owns(self, pointer);
}

static size_t plugin_available(void *self, struct cuplug_context *context, size_t free) {
    size_t pending = cuplug_plugin_pending(context->device) + cuplug_plugin_put_off(context->device);

    (void)self;
    if (CUPLUG_PLUGIN_HAS(available)) {
        cuplug_self.depth++;
        free = cuplug_plugin_ops.available(cuplug_plugin_self, context, free);
        cuplug_self.depth--;
    }
    return free + pending;
}

static size_t plugin_trim(void *self, CUdevice device, struct cuplug_context *context) {
    size_t given = 0;

    (void)self, (void)context;
    for (int effort = 0; effort < CUPLUG_PLUGIN_EFFORTS; effort++)
        given += cuplug_plugin_reclaim(device, (enum cuplug_plugin_effort)effort);
    if (CUPLUG_PLUGIN_HAS(trim))
        given = cuplug_plugin_call_trim(device);
    cuplug_plugin_reserved(device, 0);
    return given;
}

static void plugin_context_shared(void *self, struct cuplug_context *context) {
    (void)self;
    if (CUPLUG_PLUGIN_HAS(context_shared)) {
        cuplug_self.depth++;
        cuplug_plugin_ops.context_shared(cuplug_plugin_self, context);
        cuplug_self.depth--;
    }
}

struct loss {
    struct cuplug_context *context;
    size_t bytes;
};

static bool survives(struct cuplug_plugin_block *block, void *arg) {
    struct loss *loss = arg;

    if (block->context != loss->context)
        return true;
    loss->bytes += block->size;
    stream_blocks -= block->kind == CUPLUG_ASYNC;
    cuplug_slab_give(&cuplug_plugin_slab, block);
    return false;
}

static void plugin_context_lost(void *self, struct cuplug_context *context) {
    struct loss loss = {.context = context};

    (void)self;
    cuplug_lock(&cuplug_plugin_lock);
    cuplug_plugin_lanes_lost(context);
    cuplug_plugin_put_off_lost(context);
    cuplug_plugin_index_filter(&cuplug_plugin_index, survives, &loss);
    cuplug_unlock(&cuplug_plugin_lock);
    if (CUPLUG_PLUGIN_HAS(context_lost)) {
        cuplug_self.depth++;
        cuplug_plugin_ops.context_lost(cuplug_plugin_self, context);
        cuplug_self.depth--;
    } else if (cuplug_plugin_opened()) { /* before that it had none */
        atomic_store(&lost_memory, true);
    }
    cuplug_plugin_reserved(context->device, -(int64_t)loss.bytes);
}

struct dead_stream {
    const struct cuplug_context *context;
    uint64_t id;
};

/* The library must not be told of a stream that is no longer there. */
static void forget_stream(struct cuplug_plugin_block *block, void *arg) {
    const struct dead_stream *dead = arg;

    if (block->context == dead->context && block->stream_id == dead->id)
        block->stream = NULL;
}

static void plugin_stream_destroyed(void *self, struct cuplug_context *context, CUstream stream, uint64_t stream_id) {
    struct dead_stream dead = {context, stream_id};

    (void)self;
    cuplug_plugin_lanes_stream_destroyed(context, stream_id);
    cuplug_lock(&cuplug_plugin_lock);
    if (stream_blocks)
        cuplug_plugin_index_each(cuplug_plugin_index, forget_stream, &dead);
    cuplug_unlock(&cuplug_plugin_lock);
    if (CUPLUG_PLUGIN_HAS(stream_destroyed)) {
        cuplug_self.depth++;
        cuplug_plugin_ops.stream_destroyed(cuplug_plugin_self, context, stream, stream_id);
        cuplug_self.depth--;
    }
}

static CUresult plugin_open(const char *options, void **self) {
    (void)self;
    cuplug_plugin_name(options);
    return CUDA_SUCCESS;
}

const struct cuplug_backend_ops cuplug_backend_plugin = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "plugin",
    .alloc = plugin_alloc,
    .free = plugin_free,
    .open = plugin_open, /* with the whole of CUPLUG_BACKEND */
    .owns = plugin_owns,
    .available = plugin_available,
    .trim = plugin_trim,
    .context_shared = plugin_context_shared,
    .context_lost = plugin_context_lost,
    .stream_destroyed = plugin_stream_destroyed,
};
