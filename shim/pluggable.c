/*
 * pluggable.c: cuplug as somebody's allocator: the functions of cuplug.h that PyTorch's CUDAPluggableAllocator and CuPy's CFunctionAllocator and
 * PythonFunctionAllocator call. They end in the core like the driver front, in the stream's order. `notes_lock` guards the notes on single blocks and the
 * frees that wait for the release of a memory pool; no driver call is made under it.
 *
 * Without LD_PRELOAD the program's own calls do not come by here (cuplug_hooked): contexts are met when they allocate, reuse rests on completed
 * events only, and whether a stream captures is asked of the driver each time.
 */
#define CUPLUG_API __attribute__((visibility("default")))
#include "cuplug.h"

#include "capture.h"
#include "context.h"
#include "core.h"
#include "init.h"
#include "lock.h"
#include "pages.h"
#include "stats.h"

enum { STREAMS = 6 };

/* What is to be remembered of few blocks: that a graph or a pool of PyTorch's owns them, or that other streams used them. */
struct note {
    struct note *next;
    CUdeviceptr pointer;
    struct cuplug_torch_pool pool;
    bool pooled;     /* freed blocks wait until the pool is released */
    bool freed;      /* … on `stream` */
    int device;
    CUstream stream; /* of the free */
    CUstream used[STREAMS];
    int used_count;
};

static struct cuplug_lock notes_lock;
static struct note *notes;
static _Atomic int note_count;
static struct cuplug_slab slab = {.object_size = sizeof(struct note)};
static struct cuplug_torch_pool filling[CUPLUG_STATS_DEVICES]; /* under notes_lock: the pool that captures allocate to, 0 for none */
static _Atomic size_t most[CUPLUG_STATS_DEVICES];              /* bytes that may be live, 0 for any */

/* The context of the call: the current one if it is the device's, else the device's primary one, made current meanwhile. */
struct place {
    struct cuplug_context *context;
    int device;
    bool retained;
};

static struct cuplug_context *met(CUcontext handle, int device) {
    struct cuplug_context *context = handle ? cuplug_context_look_up(handle) : NULL;

    if (context && !context->origin && !cuplug_hooked)
        cuplug_context_appeared(handle, device, CUPLUG_CONTEXT_CREATED);
    return context;
}

static bool enter(struct place *place, int device) {
    CUcontext handle = NULL;
    CUdevice current = -1;

    *place = (struct place){.device = device};
    if (cuplug_real.cuCtxGetCurrent(&handle) == CUDA_SUCCESS && handle && cuplug_real.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device) {
        place->context = met(handle, device);
        return place->context != NULL;
    }
    if (cuplug_real.cuDevicePrimaryCtxRetain(&handle, device) != CUDA_SUCCESS)
        return false;
    if (cuplug_real.cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
        place->retained = true;
        place->context = met(handle, device);
        if (place->context)
            return true;
        cuplug_context_pop();
    }
    cuplug_real.cuDevicePrimaryCtxRelease_v2(device);
    return false;
}

static void leave(const struct place *place) {
    if (!place->retained)
        return;
    cuplug_context_pop();
    cuplug_real.cuDevicePrimaryCtxRelease_v2(place->device);
}

/* The note on a block, made if need be; NULL without one or without memory. The lock is held. */
static struct note *note_of(CUdeviceptr pointer, bool make) {
    struct note *note = notes;

    while (note && note->pointer != pointer)
        note = note->next;
    if (!note && make && (note = cuplug_slab_take(&slab))) {
        *note = (struct note){.next = notes, .pointer = pointer};
        notes = note;
        atomic_fetch_add(&note_count, 1);
    }
    return note;
}

/* Takes a note out. The lock is held. */
static void drop(struct note *note) {
    struct note **link = &notes;

    while (*link != note)
        link = &(*link)->next;
    *link = note->next;
    cuplug_slab_give(&slab, note);
    atomic_fetch_sub(&note_count, 1);
}

/* The block is its graph's from now on: of the pool that captures fill. NULL is allowed. The lock is held. */
static void belong(struct note *note, int device) {
    if (!note || note->pooled || device >= CUPLUG_STATS_DEVICES)
        return;
    note->pooled = true;
    note->device = device;
    note->pool = filling[device];
}

static bool over_limit(int device, size_t size) {
    size_t limit = device >= 0 && device < CUPLUG_STATS_DEVICES ? atomic_load_explicit(&most[device], memory_order_relaxed) : 0;
    struct cuplug_stats stats;

    return limit && (size > limit || (cuplug_stats_device(device, &stats) && (size_t)stats.value[CUPLUG_STAT_live_bytes] > limit - size));
}

static void *allocate(size_t size, int device, CUstream stream, enum cuplug_kind kind) {
    struct cuplug_request request = {.struct_size = sizeof request, .kind = kind, .size = size, .device = device};
    CUstreamCaptureMode mode;
    CUdeviceptr pointer = 0;
    struct place place;
    bool captured;
    int backend;

    if (!size || !cuplug_on() || over_limit(device, size) || !enter(&place, device))
        return NULL;
    backend = cuplug_core_route(place.context, false);
    captured = kind == CUPLUG_ASYNC && cuplug_capturing_stream(stream);
    request.context = place.context;
    if (backend == CUPLUG_BACKEND_DIRECT) {
        request.kind = CUPLUG_SYNC;
    } else if (kind == CUPLUG_ASYNC) { /* for a stream that captures, from what nobody else uses: it is no node of the graph */
        request.stream = stream;
        request.stream_id = captured ? 0 : cuplug_core_stream_id(stream);
    }
    mode = cuplug_capture_relax();
    cuplug_core_alloc(backend, &request, &pointer);
    cuplug_capture_restore(mode);
    if (pointer && captured) {
        cuplug_lock(&notes_lock);
        belong(note_of(pointer, true), device);
        cuplug_unlock(&notes_lock);
    }
    leave(&place);
    return (void *)pointer;
}

/* Lets `stream` go on only after what `other` has been given so far. */
static void order(CUstream stream, CUstream other) {
    CUstreamCaptureMode mode = cuplug_capture_relax();
    CUevent event;

    if (!cuplug_capturing_stream(other) && cuplug_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        if (cuplug_real.cuEventRecord(event, other) != CUDA_SUCCESS || cuplug_real.cuStreamWaitEvent(stream, event, 0) != CUDA_SUCCESS)
            cuplug_real.cuStreamSynchronize(other);
        cuplug_real.cuEventDestroy_v2(event);
    }
    cuplug_capture_restore(mode);
}

/* The block goes back, in the stream's order (NULL: in the whole context's). */
static void give(const struct note *note, CUdeviceptr pointer, int device, CUstream stream) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = stream ? CUPLUG_ASYNC : CUPLUG_SYNC, .stream = stream};
    CUstreamCaptureMode mode;
    struct place place;
    CUresult result;

    if (!enter(&place, device))
        return;
    for (int i = 0; note && i < note->used_count; i++)
        if (note->used[i] != stream)
            order(stream, note->used[i]);
    if (cuplug_core_chosen() == CUPLUG_BACKEND_DIRECT)
        release.kind = CUPLUG_SYNC;
    if (release.kind == CUPLUG_ASYNC) {
        release.stream_id = cuplug_core_stream_id(stream);
        release.context = place.context;
        if (!release.stream_id) /* destroyed meanwhile: after everything, then */
            release.kind = CUPLUG_SYNC;
    }
    mode = cuplug_capture_relax();
    if (cuplug_core_free(pointer, &release, false, &result) != CUPLUG_FREED)
        cuplug_real.cuMemFree_v2(pointer);
    cuplug_capture_restore(mode);
    leave(&place);
}

static bool same_pool(const struct note *note, int device, struct cuplug_torch_pool pool) {
    return note->pooled && note->device == device && note->pool.id[0] == pool.id[0] && note->pool.id[1] == pool.id[1];
}

/* Takes a freed block of the pool out of the notes; blocks of it that live are from now on like any other. False: there is none left. */
static bool next_of_pool(int device, struct cuplug_torch_pool pool, struct note *freed) {
    struct note *found = NULL;

    cuplug_lock(&notes_lock);
    for (struct note *note = notes; note && !found; note = note->next) {
        if (same_pool(note, device, pool) && note->freed)
            found = note;
        else if (same_pool(note, device, pool))
            note->pooled = false;
    }
    if (found) {
        *freed = *found;
        drop(found);
    }
    cuplug_unlock(&notes_lock);
    return found != NULL;
}

/* Does the block stay where it is for now? What a graph may use is not reused: neither what was allocated in a capture, nor what is freed in one. If not,
 * *note is what was known of it. */
static bool keep(CUdeviceptr pointer, int device, CUstream stream, struct note *note) {
    bool captured = cuplug_capturing_stream(stream), kept = false;
    struct note *found;

    if (!captured && !atomic_load(&note_count))
        return false;
    cuplug_lock(&notes_lock);
    found = note_of(pointer, captured);
    if (captured)
        belong(found, device);
    if (found && found->pooled) {
        found->freed = kept = true;
        found->stream = stream;
    } else if (found) {
        *note = *found;
        drop(found);
    }
    cuplug_unlock(&notes_lock);
    return kept;
}

static CUstream named(CUstream stream) {
    return stream ? stream : CU_STREAM_LEGACY;
}

void *cuplug_torch_malloc(ssize_t size, int device, CUstream stream) {
    return size > 0 ? allocate((size_t)size, device, named(stream), CUPLUG_ASYNC) : NULL;
}

void cuplug_torch_free(void *pointer, ssize_t size, int device, CUstream stream) {
    struct note note = {0};

    (void)size;
    if (pointer && !cuplug_core_freed_late((CUdeviceptr)pointer) && cuplug_on() && !keep((CUdeviceptr)pointer, device, named(stream), &note))
        give(&note, (CUdeviceptr)pointer, device, named(stream));
}

void cuplug_torch_record_stream(void *pointer, CUstream stream) {
    struct note *note;

    cuplug_lock(&notes_lock);
    note = note_of((CUdeviceptr)pointer, true);
    for (int i = 0; note && i < note->used_count; i++)
        if (note->used[i] == named(stream))
            note = NULL;
    if (note && note->used_count < STREAMS) {
        note->used[note->used_count++] = named(stream);
        note = NULL;
    }
    cuplug_unlock(&notes_lock);
    if (note) /* one stream too many: wait for it instead */
        cuplug_real.cuStreamSynchronize(stream);
}

void cuplug_torch_begin_allocate_to_pool(int device, struct cuplug_torch_pool pool, void *filter) {
    (void)filter; /* a C++ object that asks whether a stream belongs to the capture, which the driver tells as well */
    cuplug_lock(&notes_lock);
    if (device >= 0 && device < CUPLUG_STATS_DEVICES)
        filling[device] = pool;
    cuplug_unlock(&notes_lock);
}

void cuplug_torch_end_allocate_to_pool(int device, struct cuplug_torch_pool pool) {
    (void)pool;
    cuplug_torch_begin_allocate_to_pool(device, (struct cuplug_torch_pool){0}, NULL);
}

void cuplug_torch_release_pool(int device, struct cuplug_torch_pool pool) {
    struct note freed;

    while (cuplug_on() && next_of_pool(device, pool, &freed))
        give(&freed, freed.pointer, device, freed.stream);
}

void cuplug_torch_init(int devices) {
    (void)devices;
}

void cuplug_torch_reset(void) {
    struct cuplug_stats stats;

    for (int device = 0; device < CUPLUG_STATS_DEVICES; device++) {
        cuplug_torch_release_pool(device, (struct cuplug_torch_pool){0});
        if (cuplug_stats_device(device, &stats) && stats.value[CUPLUG_STAT_reserved_bytes])
            cuplug_trim(device);
    }
}

void cuplug_torch_memory_fraction(double fraction, int device) {
    size_t total = 0;

    if (device < 0 || device >= CUPLUG_STATS_DEVICES || !cuplug_on() || cuplug_real.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return;
    atomic_store(&most[device], fraction > 0 && fraction < 1 ? (size_t)(fraction * (double)total) : 0);
}

void *cuplug_torch_base_alloc(void *pointer, size_t *size) {
    CUdeviceptr base = 0;
    size_t bytes = 0;

    if (!cuplug_on() || cuplug_real.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)pointer) != CUDA_SUCCESS)
        return NULL;
    if (size)
        *size = bytes;
    return (void *)base;
}

void *cuplug_cupy_malloc(void *param, size_t size, int device) {
    (void)param;
    return allocate(size, device, NULL, CUPLUG_SYNC);
}

void cuplug_cupy_free(void *param, void *pointer, int device) {
    (void)param;
    if (pointer && !cuplug_core_freed_late((CUdeviceptr)pointer) && cuplug_on())
        give(NULL, (CUdeviceptr)pointer, device, NULL);
}
