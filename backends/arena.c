/*
 * arena.c: one segment for each context, reserved at its first allocation, never grown and never given back. Full is out of memory although the
 * device may have more; before that an allocation waits for what frees have left. Owns only which devices were complained about.
 */
#include "cache.h"

#include "config/options.h"
#include "registry.h"
#include "shim/log.h"

static struct cuplug_policy policy;
static _Atomic uint64_t told; /* devices, a bit each, that could not reserve and were said so */

/* The arena's size where so much is free. */
static size_t whole(size_t free) {
    struct cuplug_amount size = cuplug_arena_options.size;

    return size.percent ? (free / 100 * size.value) & ~(CUPLUG_CACHE_PAGE - 1) : size.value & ~(CUPLUG_CACHE_GRAIN - 1);
}

static void complain(struct cuplug_context *context, size_t size) {
    if (!cuplug_context_fault(context) && cuplug_cache_first(&told, context->device))
        cuplug_log(CUPLUG_LOG_ERROR, "%s: device %d cannot reserve %zu MiB (%zu MiB are free); allocations fail there", cuplug_options.backend,
                   context->device, size >> 20, cuplug_cache_device_free(context) >> 20);
}

static CUresult arena_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    CUresult result = cuplug_real.cuMemAlloc_v2(base, size);

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        complain(context, size);
    return result;
}

/* All at once, whatever is needed now. */
static size_t arena_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t size;

    (void)least;
    if (reserved)
        return 0;
    size = whole(cuplug_cache_device_free(context));
    if (!size)
        complain(context, CUPLUG_CACHE_PAGE);
    return size;
}

static size_t arena_room(struct cuplug_context *context) {
    struct cuplug_cache *cache = cuplug_cache_there(&policy, context);
    size_t free, size;

    if (cache && cuplug_cache_reserved(cache))
        return 0;
    free = cuplug_cache_device_free(context);
    size = whole(free);
    return size > free ? 0 : size;
}

static struct cuplug_policy policy = {
    .backend = CUPLUG_BACKEND_ARENA,
    .segment = arena_segment,
    .step = arena_step,
    .room = arena_room,
    .patient = true,
    .keeps = true,
    .keep = {.percent = true, .value = 100},
    .slack = CUPLUG_CACHE_SLACK,
};

static CUresult arena_open(const char *options, void **self) {
    (void)options;
    *self = &policy;
    return CUDA_SUCCESS;
}

const struct cuplug_backend_ops cuplug_backend_arena = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "arena",
    .open = arena_open,
    CUPLUG_CACHE_OPS,
};
