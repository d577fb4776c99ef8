/*
 * managed.c — advice and prefetching: accepted for managed memory, ordered in the stream, without effect.
 */
#include "sim.h"

static CUresult managed(CUdeviceptr address, size_t size) {
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    bool ok = alloc && alloc->kind == SIM_MANAGED && size && size <= alloc->base + alloc->size - address;
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
    (void)advice, (void)device;
    return managed(address, size);
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
    (void)advice, (void)location;
    return managed(address, size);
}

static CUresult prefetch(CUdeviceptr address, size_t size, CUstream handle) {
    CUresult r = managed(address, size);
    if (r != CUDA_SUCCESS)
        return r;
    sim_lock();
    struct sim_stream *stream;
    r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        r = sim_submit_marker(stream, NULL);
    return sim_unlock_return(r);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
    (void)device;
    return prefetch(address, size, stream);
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags, CUstream stream) {
    (void)location;
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, stream);
}
