/*
 * NULL for every result that a driver function of the shim's table has: each code as it comes. One function a row, named after it, so that a row
 * without one does not compile. What the driver itself does not survive (measured) is not tried: a NULL value for cuMemPoolSetAttribute,
 * NULL in the list of cuPointerGetAttributes.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "program.h"
#include <cuda.h>

#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) extern __typeof__(export) export __attribute__((weak)); /* the driver may be older */
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK

static CUdeviceptr block, result;
static CUmemoryPool pool;
static CUstream stream;
static CUgraph graph;
static size_t size;
static unsigned long long value;
static void *address;
static CUdevice device;

#define SAY(call) printf("%s: %d\n", #call, (int)(call))
#define NO_RESULT(export) static void null_##export(void) {}
#define NULLS(export, ...) static void null_##export(void) { __VA_ARGS__; }

NULLS(cuGetProcAddress, SAY(cuGetProcAddress("cuInit", NULL, 12000, 0)), SAY(cuGetProcAddress(NULL, &address, 12000, 0)))
NULLS(cuGetProcAddress_v2, SAY(cuGetProcAddress_v2("cuInit", NULL, 12000, 0, NULL)), SAY(cuGetProcAddress_v2(NULL, &address, 12000, 0, NULL)),
      SAY(cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, NULL)))
NULLS(cuMemAlloc_v2, SAY(cuMemAlloc_v2(NULL, 100)), SAY(cuMemAlloc_v2(NULL, 0)))
NULLS(cuMemAllocPitch_v2, SAY(cuMemAllocPitch_v2(NULL, &size, 100, 1, 4)), SAY(cuMemAllocPitch_v2(&result, NULL, 100, 1, 4)),
      SAY(cuMemAllocPitch_v2(NULL, NULL, 100, 1, 4)))
NULLS(cuMemAllocManaged, SAY(cuMemAllocManaged(NULL, 100, CU_MEM_ATTACH_GLOBAL)))
NO_RESULT(cuMemFree_v2)
NULLS(cuMemGetInfo_v2, SAY(cuMemGetInfo_v2(NULL, &size)), SAY(cuMemGetInfo_v2(&size, NULL)), SAY(cuMemGetInfo_v2(NULL, NULL)))
NULLS(cuMemAllocAsync, SAY(cuMemAllocAsync(NULL, 100, stream)), SAY(cuMemAllocAsync(NULL, 100, NULL)), SAY(cuMemAllocAsync(NULL, 0, stream)))
NULLS(cuMemAllocAsync_ptsz, SAY(cuMemAllocAsync_ptsz(NULL, 100, NULL)))
NULLS(cuMemAllocFromPoolAsync, SAY(cuMemAllocFromPoolAsync(NULL, 100, pool, stream)), SAY(cuMemAllocFromPoolAsync(&result, 100, NULL, stream)))
NULLS(cuMemAllocFromPoolAsync_ptsz, SAY(cuMemAllocFromPoolAsync_ptsz(NULL, 100, pool, NULL)))
NO_RESULT(cuMemFreeAsync)
NO_RESULT(cuMemFreeAsync_ptsz)
NULLS(cuDeviceSetMemPool, SAY(cuDeviceSetMemPool(device, NULL)))
NULLS(cuMemSetMemPool, SAY(cuMemSetMemPool(NULL, CU_MEM_ALLOCATION_TYPE_PINNED, pool)))
NULLS(cuMemPoolGetAttribute, SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL)),
      SAY(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value)))
NULLS(cuMemPoolSetAttribute, SAY(cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value)))
NULLS(cuMemPoolTrimTo, SAY(cuMemPoolTrimTo(NULL, 0)))
NULLS(cuMemPoolSetAccess, SAY(cuMemPoolSetAccess(pool, NULL, 1)), SAY(cuMemPoolSetAccess(NULL, NULL, 0)))
NULLS(cuMemCreate, SAY(cuMemCreate(NULL, 2 * MIB, NULL, 0)), SAY(cuMemCreate(&value, 2 * MIB, NULL, 0)))
NULLS(cuArrayCreate_v2, SAY(cuArrayCreate_v2(NULL, NULL)), SAY(cuArrayCreate_v2((CUarray *)&address, NULL)))
NULLS(cuArray3DCreate_v2, SAY(cuArray3DCreate_v2(NULL, NULL)), SAY(cuArray3DCreate_v2((CUarray *)&address, NULL)))
NULLS(cuMipmappedArrayCreate, SAY(cuMipmappedArrayCreate(NULL, NULL, 1)), SAY(cuMipmappedArrayCreate((CUmipmappedArray *)&address, NULL, 1)))
NULLS(cuPointerGetAttribute, SAY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block)),
      SAY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0)))
NULLS(cuPointerGetAttributes, SAY(cuPointerGetAttributes(1, NULL, NULL, block)), SAY(cuPointerGetAttributes(0, NULL, NULL, block)))
NULLS(cuPointerSetAttribute, SAY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block)))
NULLS(cuMemGetAddressRange_v2, SAY(cuMemGetAddressRange_v2(NULL, &size, block)), SAY(cuMemGetAddressRange_v2(&result, NULL, block)),
      SAY(cuMemGetAddressRange_v2(NULL, NULL, block)), SAY(cuMemGetAddressRange_v2(NULL, NULL, 0)))
NULLS(cuMemGetHandleForAddressRange, SAY(cuMemGetHandleForAddressRange(NULL, block, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)))
NULLS(cuIpcGetMemHandle, SAY(cuIpcGetMemHandle(NULL, 0)))
NULLS(cuIpcOpenMemHandle, SAY(cuIpcOpenMemHandle(NULL, (CUipcMemHandle){{0}}, 1)))
NULLS(cuIpcOpenMemHandle_v2, SAY(cuIpcOpenMemHandle_v2(NULL, (CUipcMemHandle){{0}}, 1)))
NO_RESULT(cuIpcCloseMemHandle)
NULLS(cuDevicePrimaryCtxRetain, SAY(cuDevicePrimaryCtxRetain(NULL, device)))
NO_RESULT(cuDevicePrimaryCtxRelease)
NO_RESULT(cuDevicePrimaryCtxRelease_v2)
NO_RESULT(cuDevicePrimaryCtxReset)
NO_RESULT(cuDevicePrimaryCtxReset_v2)
NULLS(cuCtxCreate, SAY(cuCtxCreate(NULL, 0, device)))
NULLS(cuCtxCreate_v2, SAY(cuCtxCreate_v2(NULL, 0, device)))
NULLS(cuCtxCreate_v3, SAY(cuCtxCreate_v3(NULL, NULL, 0, 0, device)))
NULLS(cuCtxCreate_v4, SAY(cuCtxCreate_v4(NULL, NULL, 0, device)))
NULLS(cuCtxDestroy, SAY(cuCtxDestroy(NULL)))
NULLS(cuCtxDestroy_v2, SAY(cuCtxDestroy_v2(NULL)))
NULLS(cuCtxAttach, SAY(cuCtxAttach(NULL, 0)))
NULLS(cuCtxDetach, SAY(cuCtxDetach(NULL)))
NULLS(cuCtxEnablePeerAccess, SAY(cuCtxEnablePeerAccess(NULL, 0)))
NO_RESULT(cuStreamDestroy)
NULLS(cuStreamDestroy_v2, SAY(cuStreamDestroy_v2(NULL)))
NO_RESULT(cuStreamBeginCapture)
NO_RESULT(cuStreamBeginCapture_ptsz)
NO_RESULT(cuStreamBeginCapture_v2)
NO_RESULT(cuStreamBeginCapture_v2_ptsz)
NO_RESULT(cuGreenCtxDestroy)
NULLS(cuStreamBeginCaptureToGraph, SAY(cuStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED)))
NULLS(cuStreamBeginCaptureToGraph_ptsz, SAY(cuStreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED)))
NULLS(cuStreamEndCapture, SAY(cuStreamEndCapture(stream, NULL)), SAY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)),
      SAY(cuStreamEndCapture(stream, NULL)), SAY(cuStreamEndCapture(stream, &graph)))
NULLS(cuStreamEndCapture_ptsz, SAY(cuStreamEndCapture_ptsz(stream, NULL)), SAY(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED)),
      SAY(cuStreamEndCapture_ptsz(NULL, NULL)), SAY(cuStreamEndCapture_ptsz(NULL, &graph)))

static const struct {
    void (*body)(void);
    void *export;
} rows[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) {null_##export, (void *)export},
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
};

static void must(CUresult error) {
    if (error != CUDA_SUCCESS)
        die("error %d", (int)error);
}

int main(void) {
    CUcontext context;
    must(cuInit(0));
    must(cuDeviceGet(&device, 0));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuDeviceGetDefaultMemPool(&pool, device));
    must(cuMemAlloc_v2(&block, 8192));
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].export)
            rows[i].body();
    must(cuMemFree_v2(block));
    return 0;
}
