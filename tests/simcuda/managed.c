/*
 * managed.c — advice and prefetching: accepted for managed memory, ordered in the stream, without effect. Both are about concurrent access; a device
 * without it is no valid place.
 */
#include "sim.h"

static CUresult managed(CUdeviceptr address, size_t size) {
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    bool ok = alloc && alloc->kind == SIM_MANAGED && size && size <= alloc->base + alloc->size - address;
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult place(CUdevice device) {
    if (device == CU_DEVICE_CPU)
        return CUDA_SUCCESS;
    return device >= 0 && device < sim.devices && !sim_knobs.basic_managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUdevice device_of(CUmemLocation location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

CUresult sim_cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
    CUresult r = managed(address, size);
    if (r != CUDA_SUCCESS || advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY)
        return r;
    return place(device);
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
    return sim_cuMemAdvise(address, size, advice, device_of(location));
}

static CUresult prefetch(CUdeviceptr address, size_t size, CUdevice device, CUstream handle) {
    CUresult r = managed(address, size);
    if (r == CUDA_SUCCESS)
        r = place(device);
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
    return prefetch(address, size, device, stream);
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags, CUstream stream) {
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, device_of(location), stream);
}
