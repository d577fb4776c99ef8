/*
 * CUDA's own calls, as a program reaches them: REACH is "driver" (linked), "shared" or "static" (the runtime, of which this
 * library is built with one). Bare, or cuplug's when that is preloaded.
 */
#include "../allocator.h"
#include "../../../shim/cuplug.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

/* cuplug's figures where it is preloaded; without it, what the driver's own pool holds. */
static size_t reserved(void) {
    long long bytes = 0;
    if (cuplug_get_stat && cuplug_get_stat("reserved_bytes", 0, &bytes) == 0)
        return (size_t)bytes;
    return 0;
}

static void trim(void) {
    if (cuplug_trim)
        cuplug_trim(0);
}

static CUmemoryPool default_pool(void) {
    CUmemoryPool pool = NULL;
    CUdevice device;
    if (cuCtxGetDevice(&device) == CUDA_SUCCESS)
        cuDeviceGetDefaultMemPool(&pool, device);
    return pool;
}

static size_t reserved_by_pool(void) {
    cuuint64_t bytes = 0;
    if (cuplug_get_stat)
        return reserved();
    cuMemPoolGetAttribute(default_pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    return bytes;
}

/* Its memory stays in the pool from then on, as PyTorch and NVIDIA's guide set it: without that, each synchronisation gives it
 * back. */
static void trim_pool(void) {
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool = default_pool();
    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    trim();
    cuMemPoolTrimTo(pool, 0);
}

#ifdef BY_DRIVER
static void *alloc_now(size_t size, void *stream) {
    CUdeviceptr block;
    (void)stream;
    return cuMemAlloc(&block, size) == CUDA_SUCCESS ? (void *)block : NULL;
}

static void free_now(void *block, size_t size, void *stream) {
    (void)size, (void)stream;
    cuMemFree((CUdeviceptr)block);
}

static void *alloc_ordered(size_t size, void *stream) {
    CUdeviceptr block;
    return cuMemAllocAsync(&block, size, (CUstream)stream) == CUDA_SUCCESS ? (void *)block : NULL;
}

static void free_ordered(void *block, size_t size, void *stream) {
    (void)size;
    cuMemFreeAsync((CUdeviceptr)block, (CUstream)stream);
}
#else
static void *alloc_now(size_t size, void *stream) {
    void *block;
    (void)stream;
    return cudaMalloc(&block, size) == cudaSuccess ? block : NULL;
}

static void free_now(void *block, size_t size, void *stream) {
    (void)size, (void)stream;
    cudaFree(block);
}

static void *alloc_ordered(size_t size, void *stream) {
    void *block;
    return cudaMallocAsync(&block, size, (cudaStream_t)stream) == cudaSuccess ? block : NULL;
}

static void free_ordered(void *block, size_t size, void *stream) {
    (void)size;
    cudaFreeAsync(block, (cudaStream_t)stream);
}
#endif

const struct bench_allocator bench_allocators[] = {
    {REACH, alloc_now, free_now, reserved, trim},
    {REACH "-async", alloc_ordered, free_ordered, reserved_by_pool, trim_pool},
    {0},
};
