/*
 * query.c — what the driver tells about a pointer. Only live memory is known; a block that was freed is a stranger.
 */
#include "sim.h"

#include <string.h>

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_alloc *alloc = sim_find(address);
    if (!alloc)
        return sim_unlock_return(CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = alloc->base;
    if (size)
        *size = alloc->size;
    return sim_unlock_return(CUDA_SUCCESS);
}

static struct sim_ctx *owner(const struct sim_alloc *alloc) {
    return alloc->ctx ? alloc->ctx : sim.device[alloc->device].primary;
}

static bool host_visible(const struct sim_alloc *alloc) {
    return alloc->kind == SIM_HOST || alloc->kind == SIM_MANAGED;
}

/* One attribute of live memory. */
static CUresult attribute_of(void *data, CUpointer_attribute attribute, const struct sim_alloc *alloc, CUdeviceptr address) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)owner(alloc);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = alloc->kind == SIM_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host_visible(alloc)) {
            *(void **)data = NULL;
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)data = (void *)address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = alloc->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = alloc->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = alloc->kind == SIM_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = alloc->device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = alloc->kind == SIM_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = alloc->base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = alloc->size;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)data = alloc->kind == SIM_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)alloc->pool;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static size_t attribute_size(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return 4;
    default:
        return 8;
    }
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    CUresult r = alloc ? attribute_of(data, attribute, alloc, address) : CUDA_ERROR_INVALID_VALUE;
    return sim_unlock_return(r);
}

CUresult sim_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
    if (count == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    for (unsigned i = 0; i < count; i++) {
        if (alloc && attribute_of(data[i], attributes[i], alloc, address) == CUDA_SUCCESS)
            continue;
        memset(data[i], 0, attribute_size(attributes[i])); /* unknown memory is no error here */
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = -2;
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    if (alloc)
        alloc->sync_memops = *(const unsigned *)value != 0;
    return sim_unlock_return(alloc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
