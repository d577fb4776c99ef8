/*
 * pool.c: a caching pool over the driver's device memory. It grows with the program and keeps what it has for the next allocation.
 */
#include "cache.h"

#include "config/options.h"
#include "registry.h"

static CUresult device_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    (void)context;
    return cuplug_real.cuMemAlloc_v2(base, size);
}

static size_t next_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cuplug_cache_step(reserved);

    (void)context;
    return step > least ? step : least;
}

static struct cuplug_policy policy = {
    .backend = CUPLUG_BACKEND_POOL,
    .segment = device_segment,
    .step = next_step,
    .keep = {.percent = true, .value = 100},
};

static CUresult pool_open(const char *options, void **self) {
    (void)options;
    policy.completed_only = cuplug_pool_options.reuse != 0;
    policy.free_waits = cuplug_pool_options.wait != 0;
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
