/*
 * pool.c: a caching pool over the driver's device memory. It grows with the program, to max=, and keeps what it has for the next allocation,
 * to keep=. Owns the count of what each device took.
 */
#include "budget.h"
#include "cache.h"

#include "config/options.h"
#include "registry.h"

static struct cuplug_budget budget;
static bool limited; /* max= says less than all */

/* max= in bytes. */
static size_t limit(CUdevice device) {
    struct cuplug_amount max = cuplug_pool_options.max;
    size_t total = 0;

    if (!max.percent)
        return max.value;
    return cuplug_real.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS ? total / 100 * max.value + total % 100 * max.value / 100 : 0;
}

static CUresult device_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    CUresult result;

    if (limited && !cuplug_budget_take(&budget, context->device, limit(context->device), size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuplug_real.cuMemAlloc_v2(base, size);
    if (limited && result != CUDA_SUCCESS)
        cuplug_budget_give(&budget, context->device, size);
    return result;
}

/* What max= leaves; no more than the device has. */
static size_t limited_room(struct cuplug_context *context) {
    size_t room = cuplug_budget_room(&budget, context->device, limit(context->device)), free = cuplug_cache_device_free(context);

    return room < free ? room : free;
}

static void limited_gone(struct cuplug_context *context, size_t size) {
    cuplug_budget_give(&budget, context->device, size);
}

/* Near the limit just what is needed: what a segment has too much might be missing in the next. */
static size_t next_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cuplug_cache_step(reserved);

    if (step <= least || (limited && step > cuplug_budget_room(&budget, context->device, limit(context->device)) / 8))
        return least;
    return step;
}

static struct cuplug_policy policy = {
    .backend = CUPLUG_BACKEND_POOL,
    .segment = device_segment,
    .step = next_step,
};

static CUresult pool_open(const char *options, void **self) {
    (void)options;
    policy.completed_only = cuplug_pool_options.reuse != 0;
    policy.free_waits = cuplug_pool_options.wait != 0;
    policy.keep = cuplug_pool_options.keep;
    policy.decay = cuplug_pool_options.decay;
    policy.slack = cuplug_pool_options.slack;
    limited = !cuplug_pool_options.max.percent || cuplug_pool_options.max.value < 100;
    policy.room = limited ? limited_room : NULL;
    policy.gone = limited ? limited_gone : NULL;
    *self = &policy;
    return CUDA_SUCCESS;
}

const struct cuplug_backend_ops cuplug_backend_pool = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "pool",
    .open = pool_open,
    CUPLUG_CACHE_OPS,
};
