/*
 * driver_other.c: the driver front for memory that stays the driver's own: physical memory that the program maps itself, and
 * arrays. It is not served, only counted, and may have what a backend holds idle when there is no other. No state.
 */
#include "driver_api.h"

#include "core.h"
#include "init.h"
#include "stats.h"

enum { NO_BACKEND = -1 };

/* The current context's device, -1 without one. */
static CUdevice here(void) {
    struct cuplug_context *context = cuplug_context_current();

    return context ? context->device : -1;
}

static bool again(bool on, CUresult result, CUdevice device, size_t size) {
    return on && result == CUDA_ERROR_OUT_OF_MEMORY && device >= 0 && cuplug_core_retry(result, device, size);
}

CUresult cuplug_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                            unsigned long long flags) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemCreate(handle, size, prop, flags);
    bool counts = on && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

    while (counts && again(on, result, prop->location.id, size))
        result = cuplug_real.cuMemCreate(handle, size, prop, flags);
    if (counts && result == CUDA_SUCCESS) {
        CUPLUG_COUNT(NO_BACKEND, prop->location.id, vmm_allocs, 1);
        CUPLUG_COUNT(NO_BACKEND, prop->location.id, vmm_bytes, (int64_t)size);
    }
    return result;
}

/* Bytes of an array's element. Formats of several planes and compressed ones, which have numbers of their own above these, count
 * as a byte a channel. */
static size_t element(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 1;
    }
}

static size_t extent(size_t full, unsigned int level) {
    return full >> level ? full >> level : 1;
}

/* Counts an array of so many levels, each half of the one before it; layers stay. */
static void count(bool on, CUresult result, const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels) {
    bool layers = array && array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t bytes = 0;

    if (!on || result != CUDA_SUCCESS || !array)
        return;
    for (unsigned int i = 0; i < levels && i < 32; i++)
        bytes += extent(array->Width, i) * extent(array->Height, i) * (layers ? array->Depth : extent(array->Depth, i)) *
                 array->NumChannels * element(array->Format);
    CUPLUG_COUNT(NO_BACKEND, here(), array_allocs, 1);
    CUPLUG_COUNT(NO_BACKEND, here(), array_bytes, (int64_t)bytes);
}

CUresult cuplug_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuArrayCreate_v2(pHandle, pAllocateArray);
    CUDA_ARRAY3D_DESCRIPTOR array = {0};

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuArrayCreate_v2(pHandle, pAllocateArray);
    if (pAllocateArray)
        array = (CUDA_ARRAY3D_DESCRIPTOR){.Width = pAllocateArray->Width,
                                          .Height = pAllocateArray->Height,
                                          .Format = pAllocateArray->Format,
                                          .NumChannels = pAllocateArray->NumChannels};
    count(on, result, &array, 1);
    return result;
}

CUresult cuplug_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuArray3DCreate_v2(pHandle, pAllocateArray);

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuArray3DCreate_v2(pHandle, pAllocateArray);
    count(on, result, pAllocateArray, 1);
    return result;
}

CUresult cuplug_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
    count(on, result, pMipmappedArrayDesc, numMipmapLevels);
    return result;
}
