/*
 * managed.c: managed memory, so that a program may use more than the device has; pages move between host and device as they are touched. Host
 * code may read it too, so a block is reused only once its old work is known to be done. Owns the count of what each device took, which max= bounds.
 */
#include "managed.h"

#include "budget.h"
#include "cache.h"

#include "config/options.h"
#include "registry.h"
#include "shim/capture.h"
#include "shim/log.h"

#include <sys/sysinfo.h>

static struct cuplug_budget budget;
static _Atomic uint64_t told; /* devices, a bit each, that were refused and said so */

static size_t device_bytes(CUdevice device) {
    size_t bytes = 0;

    cuplug_real.cuDeviceTotalMem_v2(&bytes, device);
    return bytes;
}

/* max=; a percentage is of all the memory that pages can be in. */
static size_t limit(CUdevice device) {
    struct cuplug_amount max = cuplug_managed_options.max;
    struct sysinfo host = {0};

    if (!max.percent)
        return max.value;
    sysinfo(&host);
    return (device_bytes(device) + (size_t)host.totalram * host.mem_unit) / 100 * max.value;
}

/* Without concurrent access the host may not touch any managed memory while a kernel runs, and the device cannot have more than fits: not what a
 * program asked cudaMalloc for. */
static bool usable(CUdevice device) {
    int concurrent = 0;

    if (cuplug_real.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) != CUDA_SUCCESS)
        return true; /* the driver is at its end, say: it will tell the allocation */
    if (concurrent || cuplug_managed_options.force)
        return true;
    if (cuplug_cache_first(&told, device))
        cuplug_log(CUPLUG_LOG_ERROR, "%s: device %d has no concurrent managed access%s (managed:force=1 insists)", cuplug_options.backend, device,
                   cuplug_options.strict ? "; allocations will fail" : "; using direct there");
    return false;
}

/* Drivers have the form with a location since 12.2. A device is its own location; the host is CU_DEVICE_CPU in the old form. */
static CUresult advise(CUdeviceptr base, size_t size, CUmem_advise advice, CUdevice device) {
    CUmemLocation location = {.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                              .id = device == CU_DEVICE_CPU ? 0 : device};

    if (cuplug_real_has(cuMemAdvise_v2))
        return cuplug_real.cuMemAdvise_v2(base, size, advice, location);
    return cuplug_real.cuMemAdvise(base, size, advice, device);
}

static CUresult prefetch(CUdeviceptr base, size_t size, CUdevice device) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};

    if (cuplug_real_has(cuMemPrefetchAsync_v2))
        return cuplug_real.cuMemPrefetchAsync_v2(base, size, location, 0, CU_STREAM_PER_THREAD);
    return cuplug_real.cuMemPrefetchAsync(base, size, device, CU_STREAM_PER_THREAD);
}

/* Advice only: what the driver does not take is no failure. New segments alone are prefetched; the pages of blocks in use again are where their last
 * use left them. The gate keeps the prefetch out of captures. */
static void place(struct cuplug_context *context, CUdeviceptr base, size_t size) {
    enum { DEVICE, HOST, NONE }; /* as options.def lists them */
    CUdevice device = context->device;
    CUstreamCaptureMode mode = cuplug_capture_relax();

    if (cuplug_managed_options.preferred == DEVICE)
        cuplug_context_answered(context, advise(base, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
    else if (cuplug_managed_options.preferred == HOST)
        cuplug_context_answered(context, advise(base, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    if (cuplug_managed_options.accessed == DEVICE)
        cuplug_context_answered(context, advise(base, size, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    if (cuplug_managed_options.prefetch && size <= device_bytes(device) && cuplug_gate_enter()) {
        cuplug_context_answered(context, prefetch(base, size, device));
        cuplug_gate_leave();
    }
    cuplug_capture_restore(mode);
}

static void managed_gone(struct cuplug_context *context, size_t size) {
    cuplug_budget_give(&budget, context->device, size);
}

static CUresult managed_segment(struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    CUresult result;

    if (!usable(context->device))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!cuplug_budget_take(&budget, context->device, limit(context->device), size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuplug_real.cuMemAllocManaged(base, size, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_SUCCESS)
        place(context, *base, size);
    else
        managed_gone(context, size);
    return result;
}

static size_t managed_room(struct cuplug_context *context) {
    return cuplug_budget_room(&budget, context->device, limit(context->device));
}

/* As the pool's, but near the limit just what is needed: what a segment has too much might be missing in the next. */
static size_t managed_step(struct cuplug_context *context, size_t reserved, size_t least) {
    size_t step = cuplug_cache_step(reserved);

    return step > least && step <= managed_room(context) / 8 ? step : least;
}

void cuplug_managed_source(struct cuplug_policy *source) {
    source->segment = managed_segment;
    source->step = managed_step;
    source->room = managed_room;
    source->gone = managed_gone;
    source->completed_only = true;
}

static struct cuplug_policy policy = {
    .backend = CUPLUG_BACKEND_MANAGED,
    .segment = managed_segment,
    .step = managed_step,
    .room = managed_room,
    .gone = managed_gone,
    .completed_only = true,
    .keep = {.percent = true, .value = 100},
    .slack = CUPLUG_CACHE_SLACK,
};

static CUresult managed_open(const char *options, void **self) {
    (void)options;
    *self = &policy;
    return CUDA_SUCCESS;
}

const struct cuplug_backend_ops cuplug_backend_managed = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "managed",
    .open = managed_open,
    CUPLUG_CACHE_OPS,
};
