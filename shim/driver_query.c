/*
 * driver_query.c: the driver front where a program asks about memory: how much there is, and what a pointer is. To the driver a
 * backend's segment is one allocation; to the program each block cut from it is, and what is in none of them is no memory at all.
 * No state, no lock; every call is as legal in a capture as the driver's own.
 */
#include "driver_api.h"

#include "config/options.h"
#include "core.h"
#include "init.h"
#include "ipc.h"
#include "others.h"

/* Of an address in which nobody has memory the driver is asked by this one, which never is any, so that the answer is exactly its
 * own. */
static const CUdeviceptr nowhere = 4096;

/* A buffer id of ours: never used again, and out of reach of the driver's, which count up from 1. */
static const unsigned long long our_buffers = 1ull << 62;

static enum cuplug_whose whose(bool on, CUdeviceptr *pointer, CUdeviceptr *base, struct cuplug_record *record) {
    enum cuplug_whose answer = on ? cuplug_core_find(*pointer, base, record) : CUPLUG_THE_DRIVERS;

    if (answer == CUPLUG_NOBODYS)
        *pointer = nowhere;
    return answer;
}

CUresult cuplug_cuMemGetInfo(size_t *free, size_t *total) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemGetInfo_v2(free, total);
    struct cuplug_context *context;
    size_t all = 0;

    if (result != CUDA_SUCCESS || !on || !free || cuplug_options.meminfo)
        return result;
    context = cuplug_context_current();
    if (!context)
        return result;
    /* What a backend holds idle is free to the program, what it will not take is not. */
    *free = cuplug_core_available(context, *free);
    if (total)
        all = *total;
    else
        cuplug_real.cuDeviceTotalMem_v2(&all, context->device);
    if (*free > all)
        *free = all;
    return result;
}

static CUmemoryPool default_pool(CUdevice device) {
    CUmemoryPool pool = NULL;

    return cuplug_real.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS ? pool : NULL;
}

/* What the driver knows of the segment only. The rest (where it is, what may be done with it) holds for every part of it. */
static void describe(void *data, CUpointer_attribute attribute, CUdeviceptr base, const struct cuplug_record *record) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = our_buffers + record->sequence;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = record->size;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)data = record->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* see cuIpcGetMemHandle */
        if (record->kind == CUPLUG_ASYNC || cuplug_options.ipc)
            *(unsigned int *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* a pool's memory is the device's (measured), the rest the context's */
        if (record->kind == CUPLUG_ASYNC)
            *(CUcontext *)data = NULL;
        else if (record->backend != CUPLUG_BACKEND_PLUGIN) /* whatever a backend of ours took it from */
            *(CUcontext *)data = record->context->handle;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: /* and to the program it comes from the default pool: driver_pools.c */
        if (record->kind == CUPLUG_ASYNC)
            *(CUmemoryPool *)data = default_pool((CUdevice)record->device);
        else if (record->backend != CUPLUG_BACKEND_PLUGIN)
            *(CUmemoryPool *)data = NULL;
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: /* for a network card's driver; they mark the memory (measured) */
        cuplug_others_seen();
        cuplug_live_mark(base, true);
        break;
    default:
        break;
    }
}

/* The same for a block of another process's, which the driver opened as a segment, too. */
static void describe_import(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    CUdeviceptr base;
    size_t size;

    if (attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        return;
    if (!cuplug_ipc_find(pointer, &base, &size))
        return;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)data = size;
    else
        *(CUdeviceptr *)data = base;
}

CUresult cuplug_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct cuplug_record record;
    CUdeviceptr base;
    bool on = cuplug_on();
    enum cuplug_whose owner = whose(on, &ptr, &base, &record);
    CUresult result = cuplug_real.cuPointerGetAttribute(data, attribute, ptr);

    if (result == CUDA_SUCCESS && owner == CUPLUG_A_BACKENDS)
        describe(data, attribute, base, &record);
    else if (result == CUDA_SUCCESS && on)
        describe_import(data, attribute, ptr);
    return result;
}

CUresult cuplug_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr ptr) {
    struct cuplug_record record;
    CUdeviceptr base;
    bool on = cuplug_on();
    CUdeviceptr asked = ptr;
    enum cuplug_whose owner = whose(on, &ptr, &base, &record);
    CUresult result = cuplug_real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);

    for (unsigned int i = 0; result == CUDA_SUCCESS && i < numAttributes; i++) {
        if (owner == CUPLUG_A_BACKENDS && data[i])
            describe(data[i], attributes[i], base, &record);
        else if (on && owner == CUPLUG_THE_DRIVERS && data[i])
            describe_import(data[i], attributes[i], ptr);
        else if (owner == CUPLUG_NOBODYS && data[i] && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER &&
                 *(CUdeviceptr *)data[i] == nowhere)
            *(CUdeviceptr *)data[i] = asked; /* what is not CUDA's may be the host's (measured) */
    }
    return result;
}

/* Is the segment around the address? */
static bool marked(CUdeviceptr pointer) {
    unsigned int value = 0;

    return cuplug_real.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer) == CUDA_SUCCESS && value;
}

/* SYNC_MEMOPS is set by who registers memory with a network card, which no fence of ours orders. The segment keeps it for good,
 * since another block may need it. */
CUresult cuplug_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct cuplug_record record;
    CUdeviceptr base;
    bool on = cuplug_on();
    enum cuplug_whose owner = whose(on, &ptr, &base, &record);
    bool marks = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && *(const unsigned int *)value != 0;
    CUresult result;

    if (on && marks && owner != CUPLUG_NOBODYS)
        cuplug_others_seen();
    if (owner == CUPLUG_A_BACKENDS && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && !marks && marked(ptr))
        result = CUDA_SUCCESS;
    else
        result = cuplug_real.cuPointerSetAttribute(value, attribute, ptr);
    if (result == CUDA_SUCCESS && owner == CUPLUG_A_BACKENDS && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        cuplug_live_mark(base, marks);
    return result;
}

CUresult cuplug_cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct cuplug_record record;
    CUdeviceptr base;
    bool on = cuplug_on();
    enum cuplug_whose owner = whose(on, &dptr, &base, &record);
    CUresult result = cuplug_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
    size_t size = 0;

    if (result != CUDA_SUCCESS || !on)
        return result;
    if (owner == CUPLUG_A_BACKENDS)
        size = record.size;
    else if (owner != CUPLUG_THE_DRIVERS || !cuplug_ipc_find(dptr, &base, &size))
        return result;
    if (pbase)
        *pbase = base;
    if (psize)
        *psize = size;
    return result;
}

/* A handle is of exactly the bytes that were named, wherever they lie, so a segment is as good as an allocation. Whoever gets it
 * uses them unseen by any fence. */
CUresult cuplug_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                              unsigned long long flags) {
    struct cuplug_record record;
    CUdeviceptr base;
    bool on = cuplug_on();
    enum cuplug_whose owner = whose(on, &dptr, &base, &record);

    if (owner == CUPLUG_A_BACKENDS)
        cuplug_others_seen();
    return cuplug_real.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
}
