/*
 * copy.c — memcpy and memset, turned into the driver calls the real runtime makes.
 */
#include "rt.h"

#define PTR(p) ((CUdeviceptr)(uintptr_t)(p))

cudaError_t rt_cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind) {
    cudaError_t r = rt_bind();
    if (r != cudaSuccess || n == 0)
        return r;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_CALL(cuMemcpyHtoD, PTR(dst), src, n);
    case cudaMemcpyDeviceToHost:
        return RT_CALL(cuMemcpyDtoH, dst, PTR(src), n);
    case cudaMemcpyDeviceToDevice:
        return RT_CALL(cuMemcpyDtoD, PTR(dst), PTR(src), n);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return RT_CALL(cuMemcpy, PTR(dst), PTR(src), n);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

cudaError_t rt_cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream) {
    cudaError_t r = rt_bind();
    if (r != cudaSuccess || n == 0)
        return r;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_CALL(cuMemcpyHtoDAsync, PTR(dst), src, n, stream);
    case cudaMemcpyDeviceToHost:
        return RT_CALL(cuMemcpyDtoHAsync, dst, PTR(src), n, stream);
    case cudaMemcpyDeviceToDevice:
        return RT_CALL(cuMemcpyDtoDAsync, PTR(dst), PTR(src), n, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return RT_CALL(cuMemcpyAsync, PTR(dst), PTR(src), n, stream);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

static CUDA_MEMCPY3D plane(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = PTR(src),
                           .srcPitch = spitch,
                           .srcHeight = height,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = PTR(dst),
                           .dstPitch = dpitch,
                           .dstHeight = height,
                           .WidthInBytes = width,
                           .Height = height,
                           .Depth = 1};
}

cudaError_t rt_cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                            enum cudaMemcpyKind kind) {
    (void)kind;
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY3D c = plane(dst, dpitch, src, spitch, width, height);
    RT_BOUND(cuMemcpy3D, &c);
}

cudaError_t rt_cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                                 enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY3D c = plane(dst, dpitch, src, spitch, width, height);
    RT_BOUND(cuMemcpy3DAsync, &c, stream);
}

static CUDA_MEMCPY3D volume(const struct cudaMemcpy3DParms *p) {
    return (CUDA_MEMCPY3D){.srcXInBytes = p->srcPos.x,
                           .srcY = p->srcPos.y,
                           .srcZ = p->srcPos.z,
                           .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = PTR(p->srcPtr.ptr),
                           .srcPitch = p->srcPtr.pitch,
                           .srcHeight = p->srcPtr.ysize,
                           .dstXInBytes = p->dstPos.x,
                           .dstY = p->dstPos.y,
                           .dstZ = p->dstPos.z,
                           .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = PTR(p->dstPtr.ptr),
                           .dstPitch = p->dstPtr.pitch,
                           .dstHeight = p->dstPtr.ysize,
                           .WidthInBytes = p->extent.width,
                           .Height = p->extent.height,
                           .Depth = p->extent.depth};
}

cudaError_t rt_cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    if (!p)
        return cudaErrorInvalidValue;
    CUDA_MEMCPY3D c = volume(p);
    RT_BOUND(cuMemcpy3D, &c);
}

cudaError_t rt_cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    if (!p)
        return cudaErrorInvalidValue;
    CUDA_MEMCPY3D c = volume(p);
    RT_BOUND(cuMemcpy3DAsync, &c, stream);
}

cudaError_t rt_cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t n) {
    (void)dst_device, (void)src_device;
    RT_BOUND(cuMemcpy, PTR(dst), PTR(src), n);
}

cudaError_t rt_cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t n, cudaStream_t stream) {
    (void)dst_device, (void)src_device;
    RT_BOUND(cuMemcpyAsync, PTR(dst), PTR(src), n, stream);
}

cudaError_t rt_cudaMemset(void *p, int value, size_t n) {
    RT_BOUND(cuMemsetD8, PTR(p), (unsigned char)value, n);
}

cudaError_t rt_cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream) {
    RT_BOUND(cuMemsetD8Async, PTR(p), (unsigned char)value, n, stream);
}

cudaError_t rt_cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height) {
    RT_BOUND(cuMemsetD2D8, PTR(p), pitch, (unsigned char)value, width, height);
}

cudaError_t rt_cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    RT_BOUND(cuMemsetD2D8Async, PTR(p), pitch, (unsigned char)value, width, height, stream);
}
