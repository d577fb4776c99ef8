/*
 * pool.c: a caching pool over the driver's device memory. It grows with the program, to max=, and keeps what it has for the next allocation,
 * to keep=. Owns the count of what each device took.
 */
#include "budget.h"
#include "cache.h"

#include "config/options.h"
#include "managed.h"
#include "registry.h"
#include "vmm.h"

static struct cuplug_budget budget;
static bool limited; /* max= says less than all */
static struct cuplug_policy policy, source; /* source: whose functions take memory and give it back, below max= */

/* max= in bytes. */
static size_t limit(CUdevice device) {
    struct cuplug_amount max = cuplug_pool_options.max;
    size_t total = 0;

    if (!max.percent)
        return max.value;
    return cuplug_real.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS ? cuplug_amount_of(max, total) : 0;
}

static CUresult device_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    (void)context;
    return cuplug_real.cuMemAlloc_v2(base, size);
}

static CUresult mapped_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    return cuplug_vmm_segment(&policy, context, size, base);
}

static bool pool_charge(struct cuplug_context *context, size_t size) {
    return !limited || cuplug_budget_take(&budget, context->device, limit(context->device), size);
}

static CUresult pool_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    CUresult result;

    if (!pool_charge(context, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = source.segment(context, size, base);
    if (limited && result != CUDA_SUCCESS)
        cuplug_budget_give(&budget, context->device, size);
    return result;
}

/* What max= leaves, and no more than there is. */
static size_t pool_room(struct cuplug_context *context) {
    size_t there = source.room ? source.room(context) : cuplug_cache_device_free(context), room = there;

    if (limited)
        room = cuplug_budget_room(&budget, context->device, limit(context->device));
    return room < there ? room : there;
}

static void pool_gone(struct cuplug_context *context, size_t size) {
    if (limited)
        cuplug_budget_give(&budget, context->device, size);
    if (source.gone)
        source.gone(context, size);
}

static size_t device_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cuplug_cache_step(reserved);

    (void)context;
    return step > least ? step : least;
}

/* What is idle moves together before there is more of it, so little need be taken ahead. */
static size_t mapped_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cuplug_cache_round_up(reserved / 16, CUPLUG_CACHE_PAGE);

    (void)context;
    return step > least ? step : least;
}

/* Near the limit just what is needed: what a segment has too much might be missing in the next. */
static size_t pool_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = source.step(context, reserved, least);

    return limited && step > cuplug_budget_room(&budget, context->device, limit(context->device)) / 8 ? least : step;
}

static struct cuplug_policy policy = {
    .backend = CUPLUG_BACKEND_POOL,
    .segment = pool_segment,
    .step = pool_step,
    .gone = pool_gone,
};

static struct cuplug_policy source = {
    .segment = device_segment,
    .step = device_step,
};

static void choose_source(void) {
    enum { DEVICE, VMM, MANAGED }; /* as options.def lists them */

    if (cuplug_pool_options.source == VMM) {
        policy.segment = mapped_segment;
        policy.charge = pool_charge;
        source.step = mapped_step;
        policy.release = cuplug_vmm_release;
        policy.whole = cuplug_vmm_whole;
        policy.lost = cuplug_vmm_lost;
        policy.joins = true;
    } else if (cuplug_pool_options.source == MANAGED) {
        cuplug_managed_source(&source);
    }
}

static CUresult pool_open(const char *options, void **self) {
    (void)options;
    choose_source();
    limited = !cuplug_pool_options.max.percent || cuplug_pool_options.max.value < 100;
    policy.room = limited || source.room ? pool_room : NULL;
    policy.completed_only = cuplug_pool_options.reuse != 0 || source.completed_only;
    policy.free_waits = cuplug_pool_options.wait != 0;
    policy.keep = cuplug_pool_options.keep;
    policy.decay = cuplug_pool_options.decay;
    policy.slack = cuplug_pool_options.slack;
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
