/*
 * copy.c — memset and memcpy in all their forms, as work on a stream.
 *
 * Pageable host memory: a source is staged before the call returns, a destination makes the call wait. Device-to-device
 * copies and memsets never wait, even in the forms that are called synchronous. Writes outside live memory are refused.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum side { BAD, PAGEABLE, PINNED, DEVICE };

static bool any_device(uintptr_t address) {
    for (int i = 0; i < sim.devices; i++)
        if (address >= sim.device[i].base && address < sim.device[i].base + sim.device[i].pages * SIM_PAGE)
            return true;
    return false;
}

static enum side side_of(uintptr_t address, size_t extent) {
    struct sim_alloc *alloc = sim_pages_find(address);
    if (alloc && alloc->kind == SIM_GRAPH) /* between launches it is nobody's, yet graphs may name it */
        return address + extent <= alloc->base + alloc->size ? DEVICE : BAD;
    alloc = sim_find(address);
    if (!alloc)
        return any_device(address) ? BAD : PAGEABLE;
    if (alloc->kind == SIM_VMM) /* mappings that lie next to each other are one piece of memory */
        return sim_vmm_accessible(address, extent) ? DEVICE : BAD;
    if (alloc->kind == SIM_HOST)
        return address + extent <= alloc->base + alloc->size ? PINNED : PAGEABLE;
    return address + extent <= alloc->base + alloc->size ? DEVICE : BAD;
}

static size_t extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
    return width && height && depth ? (depth - 1) * slice + (height - 1) * pitch + width : 0;
}

static void stage(struct sim_work *w) {
    size_t width = w->copy.width, height = w->copy.height, depth = w->copy.depth;
    char *to = malloc(width * height * depth);
    w->copy.staged = to;
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++, to += width)
            memcpy(to, (char *)w->copy.src + z * w->copy.src_slice + y * w->copy.src_pitch, width);
    w->copy.src = (uintptr_t)w->copy.staged;
    w->copy.src_pitch = width;
    w->copy.src_slice = width * height;
}

CUresult sim_copy(struct sim_stream *stream, struct sim_work *w, bool wait) {
    size_t width = w->copy.width, height = w->copy.height, depth = w->copy.depth;
    size_t size = extent(width, height, depth, w->copy.dst_pitch, w->copy.dst_slice);
    if (size == 0)
        return CUDA_SUCCESS;
    enum side dst = side_of(w->copy.dst, size);
    enum side src = side_of(w->copy.src, extent(width, height, depth, w->copy.src_pitch, w->copy.src_slice));
    if (dst == BAD || src == BAD)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return sim_submit(stream, w, NULL);
    if (src == PAGEABLE)
        stage(w);
    struct sim_op *op = NULL;
    CUresult r = sim_submit(stream, w, &op);
    if (r != CUDA_SUCCESS) {
        free(w->copy.staged);
        return r;
    }
    struct sim_ctx *ctx = stream->ctx;
    if (dst == PAGEABLE || (wait && (dst != DEVICE || src != DEVICE)))
        sim_op_wait(op);
    sim_op_unref(op);
    return ctx->sticky;
}

static CUresult copy_on(CUstream handle, struct sim_work *w, bool wait) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS && wait)
        r = sim_capture_guard(stream->ctx);
    if (r == CUDA_SUCCESS)
        r = sim_copy(stream, w, wait);
    return sim_unlock_return(r);
}

static struct sim_work linear(uintptr_t dst, uintptr_t src, size_t n) {
    return (struct sim_work){.kind = SIM_COPY, .copy = {.dst = dst, .src = src, .width = n, .height = 1, .depth = 1}};
}

static CUresult sync_linear(uintptr_t dst, uintptr_t src, size_t n) {
    struct sim_work w = linear(dst, src, n);
    return copy_on(NULL, &w, true);
}

static CUresult async_linear(uintptr_t dst, uintptr_t src, size_t n, CUstream stream) {
    struct sim_work w = linear(dst, src, n);
    return copy_on(stream, &w, false);
}

/* The typed forms insist on device memory where they say so. */
static bool on_device(CUdeviceptr address, size_t n) {
    if (n == 0)
        return true;
    sim_lock();
    enum side side = side_of(address, n);
    sim_unlock();
    return side == DEVICE || side == PINNED;
}

CUresult sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return sync_linear(dst, src, n);
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n) {
    return on_device(dst, n) ? sync_linear(dst, (uintptr_t)src, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n) {
    return on_device(src, n) ? sync_linear((uintptr_t)dst, src, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return on_device(dst, n) && on_device(src, n) ? sync_linear(dst, src, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return async_linear(dst, src, n, stream);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream) {
    return on_device(dst, n) ? async_linear(dst, (uintptr_t)src, n, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream stream) {
    return on_device(src, n) ? async_linear((uintptr_t)dst, src, n, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return on_device(dst, n) && on_device(src, n) ? async_linear(dst, src, n, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n) {
    (void)dst_ctx, (void)src_ctx;
    return sync_linear(dst, src, n);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n,
                               CUstream stream) {
    (void)dst_ctx, (void)src_ctx;
    return async_linear(dst, src, n, stream);
}

/* --- two and three dimensions --- */

static bool end_of(CUmemorytype type, const void *host, CUdeviceptr device, uintptr_t *address) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return false; /* arrays hold no bytes here */
    *address = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device;
    return true;
}

static bool from_3d(struct sim_work *w, const CUDA_MEMCPY3D *c) {
    uintptr_t dst, src;
    if (!end_of(c->dstMemoryType, c->dstHost, c->dstDevice, &dst) || !end_of(c->srcMemoryType, c->srcHost, c->srcDevice, &src))
        return false;
    size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes, dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    size_t src_slice = src_pitch * (c->srcHeight ? c->srcHeight : c->Height);
    size_t dst_slice = dst_pitch * (c->dstHeight ? c->dstHeight : c->Height);
    if (src_pitch < c->WidthInBytes || dst_pitch < c->WidthInBytes)
        return false;
    *w = (struct sim_work){.kind = SIM_COPY,
                           .copy = {.dst = dst + c->dstZ * dst_slice + c->dstY * dst_pitch + c->dstXInBytes,
                                    .src = src + c->srcZ * src_slice + c->srcY * src_pitch + c->srcXInBytes,
                                    .dst_pitch = dst_pitch,
                                    .src_pitch = src_pitch,
                                    .dst_slice = dst_slice,
                                    .src_slice = src_slice,
                                    .width = c->WidthInBytes,
                                    .height = c->Height,
                                    .depth = c->Depth}};
    return true;
}

bool sim_work_from_copy3d(struct sim_work *w, const CUDA_MEMCPY3D *c) {
    return from_3d(w, c);
}

static bool from_2d(struct sim_work *w, const CUDA_MEMCPY2D *c) {
    CUDA_MEMCPY3D d = {.srcXInBytes = c->srcXInBytes,
                       .srcY = c->srcY,
                       .srcMemoryType = c->srcMemoryType,
                       .srcHost = c->srcHost,
                       .srcDevice = c->srcDevice,
                       .srcPitch = c->srcPitch,
                       .dstXInBytes = c->dstXInBytes,
                       .dstY = c->dstY,
                       .dstMemoryType = c->dstMemoryType,
                       .dstHost = c->dstHost,
                       .dstDevice = c->dstDevice,
                       .dstPitch = c->dstPitch,
                       .WidthInBytes = c->WidthInBytes,
                       .Height = c->Height,
                       .Depth = 1};
    return from_3d(w, &d);
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) {
    struct sim_work w;
    return c && from_2d(&w, c) ? copy_on(NULL, &w, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c) {
    return sim_cuMemcpy2D_v2(c);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
    struct sim_work w;
    return c && from_2d(&w, c) ? copy_on(stream, &w, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) {
    struct sim_work w;
    return c && from_3d(&w, c) ? copy_on(NULL, &w, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream) {
    struct sim_work w;
    return c && from_3d(&w, c) ? copy_on(stream, &w, false) : CUDA_ERROR_INVALID_VALUE;
}

/* --- memset --- */

static CUresult set(CUdeviceptr dst, size_t pitch, unsigned value, unsigned elem, size_t width, size_t height, CUstream handle,
                    bool sync) {
    if (dst % elem || (height > 1 && pitch < width * elem))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work w = {.kind = SIM_MEMSET, .set = {dst, pitch, width, height, value, elem}};
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS && sync)
        r = sim_capture_guard(stream->ctx);
    size_t size = extent(width * elem, height, 1, pitch, 0);
    if (r != CUDA_SUCCESS || size == 0)
        return sim_unlock_return(r);
    enum side side = side_of(dst, size);
    if (side != DEVICE && side != PINNED)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    return sim_unlock_return(sim_submit(stream, &w, NULL));
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n) {
    return set(d, 0, v, 1, n, 1, NULL, true);
}
CUresult sim_cuMemsetD16_v2(CUdeviceptr d, unsigned short v, size_t n) {
    return set(d, 0, v, 2, n, 1, NULL, true);
}
CUresult sim_cuMemsetD32_v2(CUdeviceptr d, unsigned v, size_t n) {
    return set(d, 0, v, 4, n, 1, NULL, true);
}
CUresult sim_cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
    return set(d, 0, v, 1, n, 1, s, false);
}
CUresult sim_cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream s) {
    return set(d, 0, v, 2, n, 1, s, false);
}
CUresult sim_cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) {
    return set(d, 0, v, 4, n, 1, s, false);
}

CUresult sim_cuMemsetD2D8_v2(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h) {
    return set(d, pitch, v, 1, w, h, NULL, true);
}

CUresult sim_cuMemsetD2D32_v2(CUdeviceptr d, size_t pitch, unsigned v, size_t w, size_t h) {
    return set(d, pitch, v, 4, w, h, NULL, true);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s) {
    return set(d, pitch, v, 1, w, h, s, false);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr d, size_t pitch, unsigned v, size_t w, size_t h, CUstream s) {
    return set(d, pitch, v, 4, w, h, s, false);
}
