/*
 * host.c — pinned host memory: allocated here or registered by the program. Its device address is its host address.
 */
#include "sim.h"

#include <sys/mman.h>

static CUresult host_alloc(void **out, size_t size, unsigned flags) {
    if (!out || (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_guard(ctx);
    if (r == CUDA_SUCCESS && size == 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    size_t span = (size + 4095) & ~(size_t)4095;
    void *area =
        span < size ? MAP_FAILED : mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_alloc *alloc = sim_range_add((uintptr_t)area, size, SIM_HOST);
    alloc->span = span;
    alloc->device = ctx->device;
    alloc->host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    *out = area;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    return host_alloc(out, size, flags);
}
CUresult sim_cuMemAllocHost_v2(void **out, size_t size) {
    return host_alloc(out, size, 0);
}

static CUresult host_end(void *p, bool registered) {
    sim_lock();
    struct sim_alloc *alloc = sim_range_find((uintptr_t)p);
    if (!alloc || alloc->kind != SIM_HOST || alloc->base != (uintptr_t)p || alloc->registered != registered)
        return sim_unlock_return(registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE);
    struct sim_ctx *ctx = sim.device[alloc->device].primary;
    if (ctx && ctx->live) { /* as natively, the memory may still be the device's */
        CUresult r = sim_capture_guard(ctx);
        if (r != CUDA_SUCCESS)
            return sim_unlock_return(r);
        alloc->freeing = true;
        sim_ctx_drain(ctx);
    }
    sim_alloc_end(alloc);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemFreeHost(void *p) {
    return p ? host_end(p, false) : CUDA_SUCCESS;
}
CUresult sim_cuMemHostUnregister(void *p) {
    return p ? host_end(p, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemHostRegister_v2(void *p, size_t size, unsigned flags) {
    if (!p || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS && sim_range_overlap((uintptr_t)p, size))
        r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (r == CUDA_SUCCESS) {
        struct sim_alloc *alloc = sim_range_add((uintptr_t)p, size, SIM_HOST);
        alloc->registered = true;
        alloc->device = ctx->device;
        alloc->host_flags = flags;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuMemHostRegister(void *p, size_t size, unsigned flags) {
    return sim_cuMemHostRegister_v2(p, size, flags);
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find((uintptr_t)p);
    bool ok = alloc && alloc->kind == SIM_HOST;
    *out = ok ? (CUdeviceptr)(uintptr_t)p : 0;
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemHostGetFlags(unsigned *flags, void *p) {
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find((uintptr_t)p);
    bool ok = alloc && alloc->kind == SIM_HOST;
    if (ok)
        *flags = alloc->host_flags;
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
