/*
 * driver_pools.c: the driver front for memory pools. To the program its stream-ordered memory is from the device's default pool;
 * while a backend serves it, the driver's own pool stays empty, so what is said about it counts the backend's in. Once the
 * program has a pool of its own in the default's place, or gives others access to it, its stream-ordered memory is the driver's
 * (core.c). No state, no lock.
 */
#include "driver_api.h"

#include "capture.h"
#include "core.h"
#include "init.h"

/* The device whose default pool this is, -1 if it is none's. */
static CUdevice default_of(CUmemoryPool pool) {
    CUmemoryPool found;
    int devices = 0;

    if (!cuplug_core_fast() || cuplug_real.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return -1;
    for (CUdevice device = 0; device < devices; device++)
        if (cuplug_real.cuDeviceGetDefaultMemPool(&found, device) == CUDA_SUCCESS && found == pool)
            return device;
    return -1;
}

static bool is_current(CUmemoryPool pool, CUdevice device) {
    CUmemoryPool current;

    return cuplug_real.cuDeviceGetMemPool(&current, device) == CUDA_SUCCESS && current == pool;
}

CUresult cuplug_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuDeviceSetMemPool(dev, pool);

    if (result == CUDA_SUCCESS && on)
        cuplug_core_pool_set(dev, default_of(pool) != dev);
    return result;
}

/* The form of CUDA 13, for pools of every place and kind; cuMemAllocAsync draws from the device's. */
CUresult cuplug_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemSetMemPool(location, type, pool);

    if (result == CUDA_SUCCESS && on && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        cuplug_core_pool_set(location->id, default_of(pool) != location->id);
    return result;
}

/* Access given to the pool that a device's stream-ordered memory comes from would not hold for a backend's. */
CUresult cuplug_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemPoolSetAccess(pool, map, count);
    int devices = 0;

    if (!on || result != CUDA_SUCCESS || cuplug_real.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return result;
    for (CUdevice device = 0; device < devices; device++)
        if (is_current(pool, device))
            cuplug_core_pool_shared(device);
    return result;
}

CUresult cuplug_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemPoolGetAttribute(pool, attr, value);
    struct cuplug_usage usage;

    if (result != CUDA_SUCCESS || !on || !cuplug_core_pool_usage(default_of(pool), &usage))
        return result;
    switch (attr) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value += usage.reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value += usage.reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value += usage.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value += usage.used_high;
        break;
    default: /* how the driver's pool reuses and keeps memory: remembered there, and nothing to a backend */
        break;
    }
    return result;
}

CUresult cuplug_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemPoolSetAttribute(pool, attr, value);

    if (result == CUDA_SUCCESS && on && (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH))
        cuplug_core_pool_forget_high(default_of(pool), attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    return result;
}

/* Is nothing at work in the context? Asked by an event of its own: a record of a fence that covers work which the program
 * submitted after its frees would order new work behind that. */
static bool idle(struct cuplug_context *context) {
    CUstreamCaptureMode mode;
    CUevent event;
    bool answer = false;

    if (!cuplug_real_has(cuCtxRecordEvent) || !cuplug_gate_enter())
        return false;
    if (cuplug_context_push(context)) {
        mode = cuplug_capture_relax();
        if (cuplug_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
            answer = cuplug_real.cuCtxRecordEvent(context->handle, event) == CUDA_SUCCESS &&
                     cuplug_real.cuEventQuery(event) == CUDA_SUCCESS;
            cuplug_real.cuEventDestroy_v2(event);
        }
        cuplug_capture_restore(mode);
        cuplug_context_pop();
    }
    cuplug_gate_leave();
    return answer;
}

struct question {
    CUdevice device;
    bool idle;
};

static void ask_idle(struct cuplug_context *context, void *arg) {
    struct question *question = arg;

    if (context->device != question->device || !question->idle || !cuplug_context_enter(context))
        return;
    question->idle = idle(context);
    cuplug_context_leave(context);
}

/* A trim does not wait for the device; to give a segment back does. So only from a device that has nothing to do, as after the
 * synchronisation that the driver's own pool needs, too, to know what is idle. */
CUresult cuplug_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    bool on = cuplug_on();
    CUresult result = cuplug_real.cuMemPoolTrimTo(pool, minBytesToKeep);
    struct question question = {.idle = true};
    struct cuplug_usage usage;

    if (result != CUDA_SUCCESS || !on || cuplug_exiting())
        return result;
    question.device = default_of(pool);
    if (!cuplug_core_pool_usage(question.device, &usage) || minBytesToKeep > usage.used || usage.reserved == usage.used)
        return result; /* all that is idle would go: more than was said may */
    cuplug_context_each(ask_idle, &question);
    if (question.idle)
        cuplug_core_trim_all(question.device);
    return result;
}
