/*
 * memory.c — allocation and what can be asked about pointers. A size of zero is cudart's own business: NULL, no error.
 */
#include "rt.h"

#include <string.h>

#define PTR(p) ((CUdeviceptr)(uintptr_t)(p))

cudaError_t rt_cudaMalloc(void **p, size_t size) {
    cudaError_t r = p ? rt_bind() : rt_start();
    if (r != cudaSuccess || !p)
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    *p = NULL;
    if (size == 0)
        return cudaSuccess;
    RT_BOUND(cuMemAlloc, (CUdeviceptr *)p, size);
}

cudaError_t rt_cudaFree(void *p) {
    RT_BOUND(cuMemFree, PTR(p));
}

cudaError_t rt_cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
    if (!p || !pitch)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_bind();
    *p = NULL;
    if (r == cudaSuccess && (width == 0 || height == 0))
        *pitch = 0;
    else if (r == cudaSuccess)
        r = RT_CALL(cuMemAllocPitch, (CUdeviceptr *)p, pitch, width, height, 4);
    return r;
}

cudaError_t rt_cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent extent) {
    if (!p)
        return cudaErrorInvalidValue;
    size_t rows;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudaErrorMemoryAllocation;
    p->xsize = extent.width;
    p->ysize = extent.height;
    return rt_cudaMallocPitch(&p->ptr, &p->pitch, extent.width, rows);
}

cudaError_t rt_cudaMallocManaged(void **p, size_t size, unsigned flags) {
    if (!p)
        return cudaErrorInvalidValue;
    if (size == 0) {
        *p = NULL;
        return rt_bind();
    }
    RT_BOUND(cuMemAllocManaged, (CUdeviceptr *)p, size, flags);
}

cudaError_t rt_cudaMallocAsync(void **p, size_t size, cudaStream_t stream) {
    if (!p)
        return cudaErrorInvalidValue;
    RT_BOUND(cuMemAllocAsync, (CUdeviceptr *)p, size, stream);
}

cudaError_t rt_cudaMallocFromPoolAsync(void **p, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    if (!p)
        return cudaErrorInvalidValue;
    RT_BOUND(cuMemAllocFromPoolAsync, (CUdeviceptr *)p, size, pool, stream);
}

cudaError_t rt_cudaFreeAsync(void *p, cudaStream_t stream) {
    RT_BOUND(cuMemFreeAsync, PTR(p), stream);
}
cudaError_t rt_cudaMemGetInfo(size_t *free, size_t *total) {
    RT_BOUND(cuMemGetInfo, free, total);
}

cudaError_t rt_cudaHostAlloc(void **p, size_t size, unsigned flags) {
    if (!p)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_bind();
    *p = NULL;
    return r != cudaSuccess || size == 0 ? r : RT_CALL(cuMemHostAlloc, p, size, flags);
}

cudaError_t rt_cudaMallocHost(void **p, size_t size) {
    return rt_cudaHostAlloc(p, size, 0);
}
cudaError_t rt_cudaFreeHost(void *p) {
    RT_BOUND(cuMemFreeHost, p);
}
cudaError_t rt_cudaHostRegister(void *p, size_t size, unsigned flags) {
    RT_BOUND(cuMemHostRegister, p, size, flags);
}
cudaError_t rt_cudaHostUnregister(void *p) {
    RT_BOUND(cuMemHostUnregister, p);
}

cudaError_t rt_cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    RT_BOUND(cuMemHostGetDevicePointer, (CUdeviceptr *)device, host, flags);
}

cudaError_t rt_cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p) {
    if (!out)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_start(); /* needs no context */
    if (r != cudaSuccess)
        return r;
    unsigned type = 0, managed = 0;
    int ordinal = -2;
    void *device = NULL, *host = NULL;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *into[] = {&type, &managed, &ordinal, &device, &host};
    r = RT_CALL(cuPointerGetAttributes, 5, which, into, PTR(p));
    if (r != cudaSuccess)
        return r;
    memset(out, 0, sizeof(*out));
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                               : cudaMemoryTypeUnregistered;
    out->device = type ? ordinal : -2;
    out->devicePointer = device;
    out->hostPointer = type ? host : (void *)p;
    return cudaSuccess;
}

cudaError_t rt_cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p) {
    RT_BOUND(cuIpcGetMemHandle, (CUipcMemHandle *)handle, PTR(p));
}

cudaError_t rt_cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags) {
    CUipcMemHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    RT_BOUND(cuIpcOpenMemHandle, (CUdeviceptr *)p, driver_handle, flags);
}

cudaError_t rt_cudaIpcCloseMemHandle(void *p) {
    RT_BOUND(cuIpcCloseMemHandle, PTR(p));
}

cudaError_t rt_cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    RT_BOUND(cuIpcGetEventHandle, (CUipcEventHandle *)handle, event);
}

cudaError_t rt_cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
    CUipcEventHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    RT_BOUND(cuIpcOpenEventHandle, event, driver_handle);
}

/* --- pools --- */

cudaError_t rt_cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props) {
    if (!pool || !props)
        return cudaErrorInvalidValue;
    CUmemPoolProps p = {.allocType = (CUmemAllocationType)props->allocType,
                        .handleTypes = (CUmemAllocationHandleType)props->handleTypes,
                        .location = {.type = (CUmemLocationType)props->location.type, .id = props->location.id},
                        .maxSize = props->maxSize};
    RT_BOUND(cuMemPoolCreate, pool, &p);
}

cudaError_t rt_cudaMemPoolDestroy(cudaMemPool_t pool) {
    RT_BOUND(cuMemPoolDestroy, pool);
}
cudaError_t rt_cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    RT_BOUND(cuMemPoolTrimTo, pool, keep);
}

cudaError_t rt_cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    RT_BOUND(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

cudaError_t rt_cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    RT_BOUND(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

cudaError_t rt_cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t count) {
    RT_BOUND(cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)map, count);
}

cudaError_t rt_cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
    RT_BOUND(cuMemPoolGetAccess, (CUmemAccess_flags *)flags, pool, (CUmemLocation *)location);
}

cudaError_t rt_cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    RT_BOUND(cuDeviceGetDefaultMemPool, pool, device);
}

cudaError_t rt_cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    RT_BOUND(cuDeviceGetMemPool, pool, device);
}
cudaError_t rt_cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    RT_BOUND(cuDeviceSetMemPool, device, pool);
}
