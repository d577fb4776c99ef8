/*
 * query.c — what the driver tells about a pointer. Only live memory is known; a block that was freed is a stranger.
 */
#include "sim.h"

#include <fcntl.h>
#include <string.h>

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    struct sim_alloc *alloc = r == CUDA_SUCCESS ? sim_find(address) : NULL;
    if (alloc && alloc->kind != SIM_MANAGED && alloc->device != ctx->device) /* measured, without peer access */
        alloc = NULL;
    if (base)
        *base = alloc ? alloc->base : 0;
    if (size)
        *size = alloc ? alloc->size : 0;
    if (r == CUDA_SUCCESS && !alloc && (base || size))
        r = CUDA_ERROR_NOT_FOUND;
    return sim_unlock_return(r);
}

/* A pool's, a graph's or mapped memory is the device's, not a context's. */
static struct sim_ctx *owner(const struct sim_alloc *alloc) {
    if (alloc->kind == SIM_POOL || alloc->kind == SIM_GRAPH || alloc->kind == SIM_VMM)
        return NULL;
    return alloc->ctx ? alloc->ctx : sim.device[alloc->device].primary;
}

static bool host_visible(const struct sim_alloc *alloc) {
    return alloc->kind == SIM_HOST || alloc->kind == SIM_MANAGED;
}

static uintptr_t page(uintptr_t address) {
    return address & ~(SIM_PAGE - 1);
}

/* One attribute of live memory. */
static CUresult attribute_of(void *data, CUpointer_attribute attribute, struct sim_alloc *alloc, CUdeviceptr address) {
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
        *(unsigned *)data = alloc->kind == SIM_DEVICE || alloc->rdma;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = alloc->kind == SIM_POOL ? (CUmemoryPool)alloc->pool : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = page(alloc->base + alloc->span + SIM_PAGE - 1) - page(alloc->base);
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = page(alloc->base);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = page(alloc->base) / SIM_PAGE;
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: /* of old network drivers; who asks for them means to register the memory */
        if (alloc->kind == SIM_HOST)
            return CUDA_ERROR_INVALID_VALUE;
        memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
        alloc->sync_memops = true;
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

/* What is said of memory that nobody knows, which is no error: nothing but zeros, and the host's pointer that it may be; of its
 * extent, nothing. */
static void stranger(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        return;
    memset(data, 0, attribute_size(attribute));
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)data = -2;
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *(void **)data = (void *)address;
}

CUresult sim_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
    if (count == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT || attributes[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID ||
            attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    for (unsigned i = 0; i < count; i++) {
        if (!alloc)
            stranger(data[i], attributes[i], address);
        else if (attribute_of(data[i], attributes[i], alloc, address) != CUDA_SUCCESS)
            memset(data[i], 0, attribute_size(attributes[i]));
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx) == CUDA_SUCCESS ? sim_capture_guard(ctx) : CUDA_SUCCESS;
    struct sim_alloc *alloc = sim_find(address);
    if (r == CUDA_SUCCESS && alloc && alloc->kind == SIM_VMM)
        r = CUDA_ERROR_NOT_SUPPORTED; /* whatever is asked */
    if (r == CUDA_SUCCESS && (!alloc || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        alloc->sync_memops = *(const unsigned *)value != 0;
    return sim_unlock_return(r);
}

/* A file descriptor for other devices: of whole host pages, up to the end of the pages that hold the allocation. */
CUresult sim_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
                                           unsigned long long flags) {
    if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags || !address || !size || address % 4096 || size % 4096)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *alloc = sim_find(address);
    bool known = alloc && (alloc->kind == SIM_DEVICE || alloc->kind == SIM_POOL) &&
                 size <= page(alloc->base + alloc->span + SIM_PAGE - 1) - address;
    *(int *)handle = known ? fcntl(sim.device[alloc->device].memfd, F_DUPFD_CLOEXEC, 0) : -1;
    return sim_unlock_return(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
