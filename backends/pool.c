/*
 * pool.c: a caching pool over the driver's device memory. It grows with the program and keeps what it has for the next allocation.
 */
#include "cache.h"

#include "config/options.h"
#include "managed.h"
#include "registry.h"
#include "vmm.h"

static CUresult device_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    (void)context;
    return cuplug_real.cuMemAlloc_v2(base, size);
}

static struct cuplug_policy policy;

static CUresult mapped_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    return cuplug_vmm_segment(&policy, context, size, base);
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
};

static CUresult pool_open(const char *options, void **self) {
    enum { DEVICE, VMM, MANAGED }; /* as options.def lists them */

    (void)options;
    if (cuplug_pool_options.source == VMM) {
        policy.segment = mapped_segment;
        policy.release = cuplug_vmm_release;
        policy.whole = cuplug_vmm_whole;
        policy.lost = cuplug_vmm_lost;
        policy.joins = true;
    }
    policy.completed_only = cuplug_pool_options.reuse != 0;
    policy.free_waits = cuplug_pool_options.wait != 0;
    if (cuplug_pool_options.source == MANAGED)
        cuplug_managed_source(&policy);
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
