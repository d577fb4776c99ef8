/*
 * core.c: see core.h. Owns the choice of backend and the sequence number; everything else is in the live table, the backends and the statistics.
 */
#include "core.h"

#include "capture.h"
#include "config/options.h"
#include "config/table.h"
#include "deepbind.h"
#include "ipc.h"
#include "limit.h"
#include "pages.h"
#include "stats.h"

#include <string.h>

/* These are written by init, before the state is published. */
static int chosen = CUPLUG_BACKEND_DIRECT;
static int fallback[CUPLUG_BACKEND_COUNT], fallbacks; /* in the order in which they stand in for it */
static bool used[CUPLUG_BACKEND_COUNT]; /* those, and the fallbacks */
static bool serves; /* any but direct */
static _Atomic uint64_t numbers; /* given out so far; to threads in blocks, so that they need not meet here */
static _Atomic uint32_t thread_count;
static _Atomic uint64_t stream_epoch; /* twice for each stream that was destroyed, or that may have been */
enum { NUMBERS_AT_ONCE = 1024 };

/* By device: the stream-ordered memory. All relaxed: figures, and a choice that may come into force a little later. */
enum { OWN_POOL = 1, SHARED_POOL = 2 };
static struct {
    _Atomic uint32_t aside;       /* why it is the driver's */
    _Atomic size_t reserved_high; /* as far as somebody asked */
    _Atomic size_t now, high;     /* bytes, for a backend that does not count them itself */
} ordered[CUPLUG_STATS_DEVICES];

/* They are kept: a library's path is opened later. What could not be set up is said to be direct, as the backend itself would be; that may be in use. */
static void open_fallbacks(const char *specs) {
    size_t size = strlen(specs) + 1, length;
    char *copy = cuplug_pages_map(size), *end = copy + size - 1;
    const char *text = copy, *spec;

    if (!copy)
        return;
    memcpy(copy, specs, size);
    while ((length = cuplug_backend_next(&text, end, &spec))) {
        int number;

        copy[spec - copy + (ptrdiff_t)length] = 0;
        number = cuplug_backend_choose(spec);
        if (!used[number])
            fallback[fallbacks++] = number;
        used[number] = true;
        text += text < end;
    }
}

void cuplug_core_init(void) {
    const struct cuplug_option *option = cuplug_option_find(NULL, "backend", strlen("backend"));
    bool named = cuplug_option_origin(option).line >= 0;

    /* Who opens cuplug as an allocator wants one. */
    chosen = cuplug_backend_choose(named || cuplug_hooked ? cuplug_options.backend : "pool");
    used[chosen] = true;
    cuplug_limit_init(chosen);
    if (cuplug_options.fallback)
        open_fallbacks(cuplug_options.fallback);
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        serves |= i != CUPLUG_BACKEND_DIRECT && used[i];
}

bool cuplug_core_refuses(void) {
    return cuplug_options.strict && !cuplug_options_valid();
}

bool cuplug_core_composed(void) {
    return cuplug_limited || fallbacks;
}

int cuplug_core_chosen(void) {
    return chosen;
}

bool cuplug_core_fast(void) {
    return chosen != CUPLUG_BACKEND_DIRECT;
}

static inline int route(const struct cuplug_context *context, bool async) {
    if (!context->origin || !(cuplug_context_live(context) || cuplug_context_settled(context)))
        return CUPLUG_BACKEND_DIRECT;
    if (async && (context->device >= CUPLUG_STATS_DEVICES || atomic_load_explicit(&ordered[context->device].aside, memory_order_relaxed)))
        return CUPLUG_BACKEND_DIRECT;
    if (chosen != CUPLUG_BACKEND_DIRECT && cuplug_deepbind_native())
        return CUPLUG_BACKEND_DIRECT;
    if (cuplug_context_fault(context)) /* the driver says so itself */
        return CUPLUG_BACKEND_DIRECT;
    return chosen;
}

int cuplug_core_route(const struct cuplug_context *context, bool async) {
    return context ? route(context, async) : CUPLUG_BACKEND_DIRECT;
}

static bool known(CUdevice device) {
    return device >= 0 && device < CUPLUG_STATS_DEVICES;
}

void cuplug_core_pool_set(CUdevice device, bool own) {
    if (known(device) && own)
        atomic_fetch_or_explicit(&ordered[device].aside, OWN_POOL, memory_order_relaxed);
    else if (known(device))
        atomic_fetch_and_explicit(&ordered[device].aside, ~(uint32_t)OWN_POOL, memory_order_relaxed);
}

void cuplug_core_pool_shared(CUdevice device) {
    if (known(device))
        atomic_fetch_or_explicit(&ordered[device].aside, SHARED_POOL, memory_order_relaxed);
}

/* A stream-ordered allocation of a backend's comes, or goes (a negative size). */
static void count_ordered(int backend, int kind, CUdevice device, int64_t size) {
    size_t now;

    if ((backend != CUPLUG_BACKEND_PLUGIN && backend != CUPLUG_BACKEND_ASYNC) || kind != CUPLUG_ASYNC || !known(device))
        return;
    now = atomic_fetch_add_explicit(&ordered[device].now, (size_t)size, memory_order_relaxed) + (size_t)size;
    if (size > 0)
        cuplug_raise_to(&ordered[device].high, now);
}

/* `forget` the most so far. False if there never were any. What several backends had at most need not have been at one time. */
static bool ordered_on(CUdevice device, bool forget, struct cuplug_ordered *answer) {
    struct cuplug_ordered own;

    answer->now = atomic_load_explicit(&ordered[device].now, memory_order_relaxed);
    if (forget)
        atomic_store_explicit(&ordered[device].high, answer->now, memory_order_relaxed);
    answer->high = atomic_load_explicit(&ordered[device].high, memory_order_relaxed);
    answer->any = answer->high > 0;
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend_ordered(i, device, forget, &own)) {
            answer->now += own.now;
            answer->high += own.high;
            answer->any |= own.any;
        }
    return answer->any;
}

/* Idle memory is any allocation's, and so the pool's, too. */
bool cuplug_core_pool_usage(CUdevice device, struct cuplug_usage *usage) {
    struct cuplug_ordered there;
    struct cuplug_context *context;

    if (!known(device) || !ordered_on(device, false, &there))
        return false;
    context = cuplug_context_current();
    if (!context || context->device != device)
        context = cuplug_context_primary(device);
    usage->used = there.now;
    usage->used_high = there.high;
    usage->reserved = there.now + (context ? cuplug_core_available(context, 0) : 0);
    cuplug_raise_to(&ordered[device].reserved_high, usage->reserved > there.high ? usage->reserved : there.high);
    usage->reserved_high = atomic_load_explicit(&ordered[device].reserved_high, memory_order_relaxed);
    return true;
}

void cuplug_core_pool_forget_high(CUdevice device, bool used) {
    struct cuplug_ordered there;
    struct cuplug_usage usage;

    if (!cuplug_core_pool_usage(device, &usage))
        return;
    if (used)
        ordered_on(device, true, &there);
    else
        atomic_store_explicit(&ordered[device].reserved_high, usage.reserved, memory_order_relaxed);
}

/* What the driver handed out is reserved as well as live; the pool counts its segments instead. */
static void count_reserved(int backend, CUdevice device, int64_t size) {
    if (backend == CUPLUG_BACKEND_DIRECT)
        CUPLUG_LEVEL(backend, device, reserved_bytes, size);
}

static void count_free(const struct cuplug_record *record) {
    cuplug_stats_freed(record->backend, (int)record->device, record->size);
    cuplug_limit_discharge(record->backend, record->kind, (CUdevice)record->device, record->size);
    count_ordered(record->backend, record->kind, (CUdevice)record->device, -(int64_t)record->size);
    count_reserved(record->backend, record->device, -(int64_t)record->size);
}

static void lose(const struct cuplug_record *record) {
    CUPLUG_COUNT(record->backend, record->device, lost_blocks, 1);
    cuplug_limit_discharge(record->backend, record->kind, (CUdevice)record->device, record->size);
    CUPLUG_LEVEL(record->backend, record->device, live_blocks, -1);
    CUPLUG_LEVEL(record->backend, record->device, live_bytes, -(int64_t)record->size);
    count_ordered(record->backend, record->kind, record->device, -(int64_t)record->size);
    count_reserved(record->backend, record->device, -(int64_t)record->size);
}

/* The allocation at this address was freed where we could not see, or it could not have been handed out again. */
static __attribute__((noinline, cold)) void forget_stale(CUdeviceptr pointer) {
    struct cuplug_record stale;

    if (cuplug_live_remove(pointer, &stale))
        lose(&stale);
}

/* The number of a new allocation, which no other has or had. */
static uint64_t new_number(void) {
    struct cuplug_kept *kept = cuplug_kept();

    if (!kept)
        return atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
    if (kept->next_number == kept->last_number) {
        kept->next_number = atomic_fetch_add_explicit(&numbers, NUMBERS_AT_ONCE, memory_order_relaxed);
        kept->last_number = kept->next_number + NUMBERS_AT_ONCE;
    }
    return kept->next_number++;
}

static bool enter(int backend, const struct cuplug_block *block, uint64_t stream_id) {
    struct cuplug_record record = {
        .size = block->size,
        .kind = block->kind,
        .backend = (uint64_t)backend,
        .cookie = block->cookie,
        .context = block->context,
        .stream = stream_id,
        .sequence = new_number(),
        .device = (uint64_t)block->device,
    };
    enum cuplug_entered entered;

    while ((entered = cuplug_live_insert(block->pointer, &record)) == CUPLUG_ALREADY_THERE)
        forget_stale(block->pointer);
    if (entered != CUPLUG_ENTERED)
        return false;
    cuplug_stats_allocated(backend, block->device, block->size);
    count_ordered(backend, block->kind, block->device, (int64_t)block->size);
    count_reserved(backend, block->device, (int64_t)block->size);
    return true;
}

/* Once an error lasts, the driver is asked itself. If it serves after all, the error did not last. */
static void answered_directly(struct cuplug_context *context, CUresult result) {
    if (cuplug_context_answered(context, result) == CUDA_SUCCESS && cuplug_context_fault(context))
        atomic_store_explicit(&context->fault, CUDA_SUCCESS, memory_order_relaxed);
}

/* Where the driver itself is asked, what other backends hold idle may make the difference. */
static CUresult allocate(int backend, const struct cuplug_request *request, struct cuplug_block *block) {
    const struct cuplug_backend_ops *ops = cuplug_backend(backend);
    CUresult result = ops->alloc(cuplug_backend_self(backend), request, block);

    while (backend == CUPLUG_BACKEND_DIRECT && cuplug_core_retry(result, request->device, request->size))
        result = ops->alloc(cuplug_backend_self(backend), request, block);
    if (backend == CUPLUG_BACKEND_DIRECT)
        answered_directly(request->context, result);
    else if (result != CUDA_SUCCESS && cuplug_context_fault(request->context)) /* met on the way */
        result = cuplug_context_fault(request->context);
    return result;
}

/* The same as far as the limit allows. */
static CUresult allocate_within_limit(int backend, const struct cuplug_request *request, struct cuplug_block *block) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!cuplug_limit_charge(backend, request->kind, request->device, request->size))
        return result;
    result = allocate(backend, request, block);
    if (result != CUDA_SUCCESS)
        cuplug_limit_discharge(backend, request->kind, request->device, request->size);
    return result;
}

/* Does the process's choice of backends apply here? See route(). */
static bool may_fall_back(const struct cuplug_request *request) {
    const struct cuplug_context *context = request->context;

    return fallbacks && context->origin && cuplug_context_live(context) && !cuplug_context_fault(context) && !cuplug_deepbind_native() &&
           !(request->kind == CUPLUG_ASYNC && (!known(context->device) || atomic_load_explicit(&ordered[context->device].aside, memory_order_relaxed)));
}

/* From those that stand in for the backend, in their order; the first that has memory becomes it. What one of them holds idle may be what another lacks. */
static CUresult fall_back(int *backend, const struct cuplug_request *request, struct cuplug_block *block) {
    do {
        for (int i = 0; i < fallbacks; i++)
            if (allocate(fallback[i], request, block) == CUDA_SUCCESS) {
                *backend = fallback[i];
                return CUDA_SUCCESS;
            }
    } while (!cuplug_context_fault(request->context) && cuplug_core_retry(CUDA_ERROR_OUT_OF_MEMORY, request->device, request->size));
    return cuplug_context_fault(request->context) ? cuplug_context_fault(request->context) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuplug_core_alloc(int backend, const struct cuplug_request *request, CUdeviceptr *pointer) {
    struct cuplug_block block = {
        .size = request->size,
        .kind = request->kind,
        .device = request->device,
        .context = request->context,
    };
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    *pointer = 0;
    if (!cuplug_core_refuses())
        result = allocate_within_limit(backend, request, &block);
    if (result == CUDA_ERROR_NOT_SUPPORTED && backend != CUPLUG_BACKEND_DIRECT) { /* the backend does not serve this device, and said why */
        if (!cuplug_options.strict)
            return cuplug_core_alloc(CUPLUG_BACKEND_DIRECT, request, pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && backend == chosen && !cuplug_core_refuses() && may_fall_back(request))
        result = fall_back(&backend, request, &block);
    if (result == CUDA_SUCCESS && !enter(backend, &block, request->stream_id)) {
        struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_SYNC};

        cuplug_backend(backend)->free(cuplug_backend_self(backend), &block, &release);
        cuplug_limit_discharge(backend, request->kind, request->device, request->size);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *pointer = block.pointer;
    else
        CUPLUG_COUNT(backend, request->device, failed, 1);
    return result;
}

static __attribute__((noinline)) CUresult alloc_the_long_way(int backend, struct cuplug_context *context, size_t size, CUdeviceptr *pointer) {
    struct cuplug_request request = {
        .struct_size = sizeof request,
        .kind = CUPLUG_SYNC,
        .size = size,
        .device = context->device,
        .context = context,
    };

    return cuplug_core_alloc(backend, &request, pointer);
}

CUresult cuplug_core_alloc_plain(struct cuplug_context *context, size_t size, CUdeviceptr *pointer) {
    int backend = route(context, false);

    return !cuplug_limited && cuplug_backend_take_kept(backend, context, size, pointer) ? CUDA_SUCCESS : alloc_the_long_way(backend, context, size, pointer);
}

CUresult cuplug_core_alloc_ordered(const struct cuplug_request *request, CUdeviceptr *pointer) {
    int backend = cuplug_core_route(request->context, true);

    return !cuplug_limited && cuplug_backend_take_in_order(backend, request->context, request->size, request->stream_id, pointer)
               ? CUDA_SUCCESS
               : cuplug_core_alloc(backend, request, pointer);
}

CUresult cuplug_core_adopt(CUresult result, enum cuplug_kind kind, size_t size, CUstream stream, CUdeviceptr *pointer) {
    struct cuplug_context *context = cuplug_context_current();
    CUdevice device = context ? context->device : 0;
    struct cuplug_block block = {.size = size, .kind = kind, .device = device, .context = context};

    if (result != CUDA_SUCCESS) {
        if (size && result == CUDA_ERROR_OUT_OF_MEMORY)
            CUPLUG_COUNT(CUPLUG_BACKEND_DIRECT, device, failed, 1);
        return result;
    }
    if (!*pointer)
        return result;
    CUPLUG_COUNT(CUPLUG_BACKEND_DIRECT, device, driver_allocs, 1);
    block.pointer = *pointer;
    cuplug_limit_charge_anyway(CUPLUG_BACKEND_DIRECT, kind, device, size);
    if (!enter(CUPLUG_BACKEND_DIRECT, &block, stream ? cuplug_core_stream_id(stream) : 0)) /* untracked: the driver frees it all the same */
        cuplug_limit_discharge(CUPLUG_BACKEND_DIRECT, kind, device, size);
    return result;
}

bool cuplug_core_owned(CUdeviceptr pointer) {
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend(i)->owns && cuplug_backend(i)->owns(cuplug_backend_self(i), pointer))
            return true;
    return false;
}

static bool locate(CUdeviceptr pointer, CUdeviceptr *base) {
    bool found = cuplug_backend_locate(chosen, pointer, base);

    for (int i = 0; i < fallbacks && !found; i++)
        found = cuplug_backend_locate(fallback[i], pointer, base);
    return found;
}

enum cuplug_whose cuplug_core_find(CUdeviceptr pointer, CUdeviceptr *base, struct cuplug_record *record) {
    *base = pointer;
    if (!serves || !pointer)
        return CUPLUG_THE_DRIVERS;
    if (cuplug_live_find(pointer, record))
        return record->backend == CUPLUG_BACKEND_DIRECT ? CUPLUG_THE_DRIVERS : CUPLUG_A_BACKENDS;
    if (!locate(pointer, base))
        return CUPLUG_THE_DRIVERS;
    return *base && cuplug_live_find(*base, record) && pointer - *base < record->size ? CUPLUG_A_BACKENDS : CUPLUG_NOBODYS;
}

/* What the driver would say of a pointer that is not an allocation. */
static CUresult refusal(void) {
    struct cuplug_context *context = cuplug_context_current();

    if (context && cuplug_context_fault(context))
        return cuplug_context_fault(context);
    return cuplug_context_check() == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_VALUE;
}

static __attribute__((noinline)) enum cuplug_freed free_the_long_way(CUdeviceptr pointer, const struct cuplug_release *release, bool fast, CUresult *result) {
    struct cuplug_record record;
    struct cuplug_block block;

    if (!(fast ? cuplug_live_remove_unless(pointer, CUPLUG_BACKEND_DIRECT, &record) : cuplug_live_remove(pointer, &record))) {
        if (fast || !cuplug_core_owned(pointer))
            return CUPLUG_NOT_OURS;
        *result = refusal(); /* the driver would free the whole segment */
        return CUPLUG_FREED;
    }
    block = (struct cuplug_block){
        .pointer = pointer,
        .cookie = record.cookie,
        .size = record.size,
        .kind = (enum cuplug_kind)record.kind,
        .device = (CUdevice)record.device,
        .context = record.context,
    };
    *result = cuplug_backend((int)record.backend)->free(cuplug_backend_self((int)record.backend), &block, release);
    if (*result != CUDA_SUCCESS) { /* it is still live: the program may free it again */
        cuplug_live_insert(pointer, &record);
        return CUPLUG_FREED;
    }
    count_free(&record);
    if (record.context && record.backend != CUPLUG_BACKEND_DIRECT) {
        cuplug_context_freed(record.context);
        *result = cuplug_context_fault(record.context);
    }
    return CUPLUG_FREED;
}

enum cuplug_freed cuplug_core_free(CUdeviceptr pointer, const struct cuplug_release *release, bool fast, CUresult *result) {
    struct cuplug_context *context = NULL;

    if (cuplug_limited)
        ; /* what is freed is to be discharged */
    else if (release->kind == CUPLUG_SYNC)
        context = cuplug_backend_keep_freed(pointer);
    else
        context = release->stream_id ? cuplug_backend_keep_freed_in_order(pointer, release->context, release->stream_id) : NULL;
    if (!context)
        return free_the_long_way(pointer, release, fast, result);
    cuplug_context_freed(context);
    *result = cuplug_context_fault(context);
    return CUPLUG_FREED;
}

bool cuplug_core_freed_late(CUdeviceptr pointer) {
    struct cuplug_record record;

    if (!cuplug_over() || !cuplug_live_remove(pointer, &record))
        return false;
    count_free(&record);
    return record.backend != CUPLUG_BACKEND_DIRECT;
}

/* The thread's memory of this handle, if nothing has ended since that it might have been the handle of; else where to remember it, for `epoch`. NULL: where
 * streams end unseen. */
static struct cuplug_known *known_stream(CUstream stream, uint64_t *epoch) {
    struct cuplug_kept *kept = cuplug_hooked ? cuplug_kept() : NULL;

    /* Both only grow. */
    *epoch = atomic_load_explicit(&stream_epoch, memory_order_acquire) + atomic_load_explicit(&cuplug_context_epoch, memory_order_acquire);
    return kept ? &kept->known[(uintptr_t)stream * 0x9e3779b97f4a7c15u >> (64 - CUPLUG_KNOWN_BITS)] : NULL;
}

uint64_t cuplug_core_stream_id(CUstream stream) {
    struct cuplug_context *context;
    unsigned long long id = 0;
    struct cuplug_known *known;
    uint64_t epoch;

    if (stream == CU_STREAM_LEGACY)
        return 1;
    if (stream == CU_STREAM_PER_THREAD) {
        if (!cuplug_self.number)
            cuplug_self.number = atomic_fetch_add_explicit(&thread_count, 1, memory_order_relaxed) + 1;
        return UINT64_MAX - cuplug_self.number;
    }
    if (!cuplug_real_has(cuStreamGetId))
        return (uint64_t)stream; /* a destroyed stream's blocks leave it before its handle can come back */
    if (cuplug_capturing_stream(stream)) /* to ask would spoil the capture, in every mode (measured) */
        return 0;
    known = known_stream(stream, &epoch);
    if (known && known->stream == stream && known->epoch == epoch)
        return known->id;
    if (cuplug_real.cuStreamGetId(stream, &id) == CUDA_SUCCESS) {
        if (known)
            *known = (struct cuplug_known){stream, id + 2, epoch};
        return id + 2;
    }
    context = cuplug_context_current();
    if (context) /* the error may be that of the stream's context, which need not be this one */
        cuplug_context_look(context);
    return 0;
}

struct dead_stream {
    CUstream stream;
    uint64_t id;
};

static void stream_dies(struct cuplug_context *context, void *arg) {
    struct dead_stream *dead = arg;

    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend(i)->stream_destroyed && (dead->id || i != CUPLUG_BACKEND_PLUGIN))
            cuplug_backend(i)->stream_destroyed(cuplug_backend_self(i), context, dead->stream, dead->id);
}

void cuplug_core_stream_ends(void) {
    atomic_fetch_add(&stream_epoch, 1);
}

void cuplug_core_stream_destroyed(CUstream stream) {
    struct dead_stream dead = {stream, serves ? cuplug_core_stream_id(stream) : 0};

    if (serves) /* also one that captures, which says no identity */
        cuplug_context_each(stream_dies, &dead);
}

size_t cuplug_core_available(struct cuplug_context *context, size_t free) {
    int backend = cuplug_core_route(context, false);
    const struct cuplug_backend_ops *ops = cuplug_backend(backend);

    return cuplug_limit_leaves(context->device, ops->available ? ops->available(cuplug_backend_self(backend), context, free) : free);
}

size_t cuplug_core_trim(CUdevice device) {
    size_t given = 0;

    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend(i)->trim)
            given += cuplug_backend(i)->trim(cuplug_backend_self(i), device, NULL);
    return given;
}

/* The first gives back what frees recorded, if there is any; the second, then, what they did not. */
size_t cuplug_core_trim_all(CUdevice device) {
    size_t given = cuplug_core_trim(device);

    return given ? given + cuplug_core_trim(device) : 0;
}

bool cuplug_core_retry(CUresult result, CUdevice device, size_t size) {
    size_t total = 0;

    return result == CUDA_ERROR_OUT_OF_MEMORY && !cuplug_exiting() && cuplug_real.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS &&
           size <= total && cuplug_core_trim(device) > 0;
}

void cuplug_core_reached(struct cuplug_context *context, CUdevice by) {
    if (by < 0 || by >= 64)
        return;
    atomic_fetch_or(&context->peers, (uint64_t)1 << by);
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i])
            cuplug_backend_reached(i, context, by);
}

void cuplug_core_context_shared(struct cuplug_context *context) {
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend(i)->context_shared)
            cuplug_backend(i)->context_shared(cuplug_backend_self(i), context);
}

void cuplug_core_context_lost(struct cuplug_context *context) {
    cuplug_live_drop_context(context, lose);
    cuplug_ipc_context_lost(context);
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (used[i] && cuplug_backend(i)->context_lost)
            cuplug_backend(i)->context_lost(cuplug_backend_self(i), context);
}
