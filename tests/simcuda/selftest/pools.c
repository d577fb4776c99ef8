/* pools.c — stream-ordered memory comes back when its stream, and only when everybody else, may have it. */
#include "selftest.h"

static CUstream a, b;

static void reuse(void) {
    CUdeviceptr p, q, r;
    cuMemAllocAsync(&p, 1 << 20, a);
    cuLaunchHostFunc(a, slow, (void *)30);
    cuMemsetD8Async(p, 1, 1 << 20, a);
    cuMemFreeAsync(p, a);
    cuMemAllocAsync(&q, 1 << 20, b);
    check(q != p, "another stream does not get a block whose free is pending");
    cuMemAllocAsync(&r, 1 << 20, a);
    check(r == p, "the same stream gets it at once");
    cuMemsetD8Async(r, 2, 1 << 20, a);
    cuStreamSynchronize(a);
    check(byte_at(r) == 2, "in stream order");
    cuMemFreeAsync(r, a);
    cuStreamQuery(a);
    while (cuStreamQuery(a) == CUDA_ERROR_NOT_READY)
        sleep_ms(1);
    CUdeviceptr s;
    cuMemAllocAsync(&s, 1 << 20, b);
    check(s == p, "and everybody when the free is done");
    cuMemFreeAsync(s, b);
    cuMemFreeAsync(q, b);
    cuCtxSynchronize();
}

static void accounting(void) {
    size_t before, during, after, total;
    CUdeviceptr p;
    CUmemoryPool pool, own, current;
    cuuint64_t reserved = 1, threshold = ~(cuuint64_t)0;
    cuMemGetInfo(&before, &total);
    cuDeviceGetDefaultMemPool(&pool, 0);
    cuMemAllocAsync(&p, 8 << 20, a);
    cuMemGetInfo(&during, &total);
    check(before - during == (size_t)8 << 20, "a pool takes device memory");
    cuMemFreeAsync(p, a);
    cuStreamSynchronize(a);
    cuMemGetInfo(&after, &total);
    check(after == before, "and gives it back at a synchronisation");
    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    cuMemAllocAsync(&p, 8 << 20, a);
    cuMemFreeAsync(p, a);
    cuStreamSynchronize(a);
    cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    check(reserved == (cuuint64_t)8 << 20, "unless the threshold keeps it");
    cuMemPoolTrimTo(pool, 0);
    cuMemGetInfo(&after, &total);
    check(after == before, "until it is trimmed");
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    expect(cuMemPoolCreate(&own, &props), CUDA_SUCCESS, "a pool of our own");
    expect(cuMemAllocFromPoolAsync(&p, 100, own, a), CUDA_SUCCESS, "allocates");
    CUmemoryPool from = NULL;
    cuPointerGetAttribute(&from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    check(from == own, "from it");
    cuMemFreeAsync(p, a);
    cuDeviceSetMemPool(0, own);
    cuDeviceGetMemPool(&current, 0);
    check(current == own, "it can be the current one");
    cuStreamSynchronize(a);
    expect(cuMemPoolDestroy(own), CUDA_SUCCESS, "and be destroyed");
    cuDeviceGetMemPool(&current, 0);
    check(current == pool, "which makes the default one current");
    expect(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE, "the default one cannot be");
    props.maxSize = 4 << 20;
    expect(cuMemPoolCreate(&own, &props), CUDA_SUCCESS, "a pool with a limit");
    expect(cuMemAllocFromPoolAsync(&p, 8 << 20, own, a), CUDA_ERROR_OUT_OF_MEMORY, "has no more than that");
    expect(cuMemAllocFromPoolAsync(&p, 2 << 20, own, a), CUDA_SUCCESS, "but so much");
    CUmemAccessDesc none = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    expect(cuMemPoolSetAccess(own, &none, 1), CUDA_ERROR_INVALID_DEVICE, "its own device keeps its access");
    cuMemFreeAsync(p, a);
}

int main(void) {
    start(0);
    cuStreamCreate(&a, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&b, CU_STREAM_NON_BLOCKING);
    reuse();
    accounting();
    return finish();
}
