/*
 * driver_other.c: the driver front for memory that stays the driver's own. It is not served and not counted, but may have what a backend holds idle when
 * there is no other; and some calls say that others than this context's streams will use memory. No state.
 */
#include "driver_api.h"

#include "core.h"
#include "init.h"
#include "others.h"

/* The current context's device, -1 without one. */
static CUdevice here(void) {
    struct cuplug_context *context = cuplug_context_current();

    return context ? context->device : -1;
}

static bool again(bool on, CUresult result, CUdevice device, size_t size) {
    return on && result == CUDA_ERROR_OUT_OF_MEMORY && device >= 0 && cuplug_core_retry(result, device, size);
}

CUresult cuplug_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemCreate(handle, size, prop, flags);

    while (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && again(on, result, prop->location.id, size))
        result = cuplug_real.cuMemCreate(handle, size, prop, flags);
    return result;
}

CUresult cuplug_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuArrayCreate_v2(pHandle, pAllocateArray);

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuArrayCreate_v2(pHandle, pAllocateArray);
    return result;
}

CUresult cuplug_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuArray3DCreate_v2(pHandle, pAllocateArray);

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuArray3DCreate_v2(pHandle, pAllocateArray);
    return result;
}

CUresult cuplug_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);

    while (again(on, result, on ? here() : -1, 0))
        result = cuplug_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
    return result;
}

/* Access given to the pool that a device's stream-ordered memory comes from would not hold for a backend's. */
CUresult cuplug_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemPoolSetAccess(pool, map, count);
    int devices = 0;

    if (!on || result != CUDA_SUCCESS || cuplug_real.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return result;
    for (CUdevice device = 0; device < devices; device++) {
        CUmemoryPool current;

        if (cuplug_real.cuDeviceGetMemPool(&current, device) == CUDA_SUCCESS && current == pool)
            cuplug_core_own_pool(device);
    }
    return result;
}

/* Set by who registers memory with a network card, which no fence of ours orders. */
CUresult cuplug_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    if (cuplug_on() && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        cuplug_others_seen();
    return cuplug_real.cuPointerSetAttribute(value, attribute, ptr);
}
