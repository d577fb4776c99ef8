/*
 * driver_api.c: the memory functions of the driver front. Each asks whether the call is ours, and otherwise is the driver's own. Contexts and
 * captures are in driver_context.c.
 */
#include "driver_api.h"

#include "capture.h"
#include "core.h"
#include "init.h"
#include "live.h"
#include "log.h"

/* The driver's pitch on every device it was measured on; the element sizes it accepts are the coalescing ones. */
enum { PITCH = 512 };

/* The stream that 0 means to an entry point of this flavour. */
static CUstream named(CUstream stream, CUstream zero) {
    return stream ? stream : zero;
}

/* The runtime front has the result already and only wants the runtime to say so. It also learns from this that the runtime's call came by here. */
static bool handed_off(enum cuplug_handoff kind, CUresult *result) {
    cuplug_self.entered = true;
    if (cuplug_self.handoff != kind)
        return false;
    cuplug_self.handoff = CUPLUG_HANDOFF_NONE;
    *result = cuplug_self.handoff_result;
    return true;
}

/* A call that is not ours. One that a plugin makes is its backend's call to the driver. */
static CUresult passed(CUresult result, enum cuplug_counter counter) {
    struct cuplug_context *context = cuplug_self.depth && result == CUDA_SUCCESS ? cuplug_context_current() : NULL;

    if (context)
        cuplug_stats_count(CUPLUG_BACKEND_PLUGIN, context->device, counter, 1);
    return result;
}

/* Where the core refuses every allocation, so must those that it does not make itself. */
static bool refused(CUdeviceptr *dptr, size_t size) {
    if (!dptr || !size || !cuplug_core_refuses())
        return false;
    *dptr = 0;
    return true;
}

CUresult cuplug_cuMemAlloc(CUdeviceptr *dptr, size_t bytesize) {
    struct cuplug_context *context;
    CUresult result;

    if (!cuplug_on())
        return passed(cuplug_real.cuMemAlloc_v2(dptr, bytesize), CUPLUG_STAT_driver_allocs);
    if (handed_off(CUPLUG_HANDOFF_ALLOC, &result)) {
        *dptr = 0;
        return result;
    }
    context = dptr && bytesize ? cuplug_context_current() : NULL;
    if (!context) { /* the driver has the exact answer */
        result = cuplug_real.cuMemAlloc_v2(dptr, bytesize);
        return dptr ? cuplug_core_adopt(result, CUPLUG_SYNC, bytesize, NULL, dptr) : result;
    }
    return cuplug_core_alloc_plain(context, bytesize, dptr);
}

/* pitch * height in *size; false if the driver had better answer (bad element size, nothing asked, overflow). */
static bool pitched(size_t width, size_t height, unsigned element, size_t *pitch, size_t *size) {
    if (!width || !height || (element != 4 && element != 8 && element != 16) || width > SIZE_MAX - PITCH)
        return false;
    *pitch = (width + PITCH - 1) & ~(size_t)(PITCH - 1);
    return !__builtin_mul_overflow(*pitch, height, size);
}

CUresult cuplug_cuMemAllocPitch(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes) {
    struct cuplug_context *context;
    size_t pitch, size;
    CUresult result;
    int backend;

    if (!cuplug_on())
        return cuplug_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    if (pPitch && refused(dptr, WidthInBytes))
        return cuplug_core_adopt(CUDA_ERROR_OUT_OF_MEMORY, CUPLUG_SYNC, WidthInBytes, NULL, dptr);
    context = dptr && pPitch ? cuplug_context_current() : NULL;
    backend = cuplug_core_route(context, false);
    if ((backend == CUPLUG_BACKEND_DIRECT && !(context && cuplug_core_composed())) || !pitched(WidthInBytes, Height, ElementSizeBytes, &pitch, &size)) {
        result = cuplug_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
        while (context && cuplug_core_retry(result, context->device, 0))
            result = cuplug_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
        return dptr && pPitch ? cuplug_core_adopt(result, CUPLUG_SYNC, result == CUDA_SUCCESS ? *pPitch * Height : WidthInBytes, NULL, dptr)
                              : result;
    }
    result = cuplug_core_alloc_plain(context, size, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

CUresult cuplug_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    struct cuplug_context *context;
    bool on = cuplug_on();
    CUresult result;

    if (on && refused(dptr, bytesize))
        return cuplug_core_adopt(CUDA_ERROR_OUT_OF_MEMORY, CUPLUG_MANAGED, bytesize, NULL, dptr);
    result = cuplug_real.cuMemAllocManaged(dptr, bytesize, flags);
    if (!on || !dptr)
        return result;
    context = cuplug_context_current();
    while (context && cuplug_core_retry(result, context->device, bytesize))
        result = cuplug_real.cuMemAllocManaged(dptr, bytesize, flags);
    return cuplug_core_adopt(result, CUPLUG_MANAGED, bytesize, NULL, dptr);
}

/* Is a free the driver's though we are not on? A plugin's calls are, unless they concern memory that the program has. */
static __attribute__((noinline)) bool passes(CUdeviceptr dptr) {
    struct cuplug_record record;

    return !(cuplug_self.depth && atomic_load_explicit(&cuplug_state, memory_order_acquire) == CUPLUG_ON && cuplug_live_find(dptr, &record));
}

CUresult cuplug_cuMemFree(CUdeviceptr dptr) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_SYNC};
    CUresult result;

    if (!cuplug_on() && passes(dptr)) {
        if (cuplug_core_freed_late(dptr))
            return CUDA_SUCCESS;
        return passed(cuplug_self.hurried && dptr ? cuplug_plugin_free_later(dptr) : cuplug_real.cuMemFree_v2(dptr),
                      CUPLUG_STAT_driver_frees);
    }
    if (handed_off(CUPLUG_HANDOFF_FREE, &result))
        return result;
    if (dptr && cuplug_core_free(dptr, &release, false, &result) == CUPLUG_FREED)
        return result;
    return cuplug_real.cuMemFree_v2(dptr);
}

/* The context whose memory a stream's allocation comes from. */
static struct cuplug_context *context_of(CUstream stream) {
    struct cuplug_context *context = cuplug_context_current();
    CUcontext handle = NULL;

    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || (context && !cuplug_context_shared()))
        return context;
    if (cuplug_real.cuStreamGetCtx(stream, &handle) != CUDA_SUCCESS || !handle || (context && handle == context->handle))
        return context;
    return cuplug_context_look_up(handle);
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytesize, CUstream stream) {
    struct cuplug_request request = {.struct_size = sizeof request, .kind = CUPLUG_ASYNC, .size = bytesize, .stream = stream};
    CUresult result;

    if (handed_off(CUPLUG_HANDOFF_ALLOC, &result)) {
        *dptr = 0;
        return result;
    }
    if (refused(dptr, bytesize))
        return cuplug_core_adopt(CUDA_ERROR_OUT_OF_MEMORY, CUPLUG_ASYNC, bytesize, stream, dptr);
    /* On a capturing stream it becomes a node of the graph, and the memory the graph's. */
    if (!dptr || !bytesize || cuplug_capturing_stream(stream))
        return cuplug_driver_alloc_async(dptr, bytesize, stream);
    request.context = context_of(stream);
    request.stream_id = cuplug_core_stream_id(stream);
    if (!request.context || !request.stream_id) /* the driver says what is wrong */
        return cuplug_driver_alloc_async(dptr, bytesize, stream);
    request.device = request.context->device;
    return cuplug_core_alloc_ordered(&request, dptr);
}

CUresult cuplug_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    if (!cuplug_on())
        return passed(cuplug_real.cuMemAllocAsync(dptr, bytesize, hStream), CUPLUG_STAT_driver_allocs);
    return alloc_async(dptr, bytesize, named(hStream, CU_STREAM_LEGACY));
}

CUresult cuplug_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    if (!cuplug_on())
        return passed(cuplug_real.cuMemAllocAsync_ptsz(dptr, bytesize, hStream), CUPLUG_STAT_driver_allocs);
    return alloc_async(dptr, bytesize, named(hStream, CU_STREAM_PER_THREAD));
}

typedef CUresult from_pool_fn(CUdeviceptr *, size_t, CUmemoryPool, CUstream);

/* `on` was asked before `real` was read: the first call fills the real entry points. */
static CUresult alloc_from_pool(bool on, from_pool_fn *real, CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream stream) {
    bool captured = on && cuplug_capturing_stream(stream);
    struct cuplug_context *context;
    CUresult result;

    if (on && refused(dptr, bytesize))
        return cuplug_core_adopt(CUDA_ERROR_OUT_OF_MEMORY, CUPLUG_POOLED, bytesize, stream, dptr);
    result = real(dptr, bytesize, pool, stream);
    if (!on || !dptr || captured)
        return result;
    context = cuplug_context_current();
    while (context && cuplug_core_retry(result, context->device, bytesize))
        result = real(dptr, bytesize, pool, stream);
    return cuplug_core_adopt(result, CUPLUG_POOLED, bytesize, stream, dptr);
}

CUresult cuplug_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    bool on = cuplug_on();

    return alloc_from_pool(on, cuplug_real.cuMemAllocFromPoolAsync, dptr, bytesize, pool, named(hStream, CU_STREAM_LEGACY));
}

CUresult cuplug_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    bool on = cuplug_on();

    return alloc_from_pool(on, cuplug_real.cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, named(hStream, CU_STREAM_PER_THREAD));
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_ASYNC, .stream = stream};
    CUresult result;

    if (handed_off(CUPLUG_HANDOFF_FREE, &result))
        return result;
    if (!dptr)
        return cuplug_driver_free_async(dptr, stream);
    if (cuplug_capturing_stream(stream)) /* a graph frees only what graphs allocated */
        return cuplug_core_owned(dptr) ? CUDA_ERROR_INVALID_VALUE : cuplug_driver_free_async(dptr, stream);
    release.stream_id = cuplug_core_stream_id(stream);
    release.context = context_of(stream);
    if (!release.context) /* a default stream of no context, or nothing is initialised yet: the driver knows, but must not see memory of ours */
        return cuplug_core_owned(dptr) ? CUDA_ERROR_INVALID_CONTEXT : cuplug_driver_free_async(dptr, stream);
    if (!release.stream_id && cuplug_core_owned(dptr)) /* not a stream: the driver says so, but must not see memory of ours */
        return cuplug_context_fault(release.context) ? cuplug_context_fault(release.context) : CUDA_ERROR_INVALID_HANDLE;
    if (cuplug_core_free(dptr, &release, false, &result) == CUPLUG_FREED)
        return result;
    return cuplug_driver_free_async(dptr, stream);
}

CUresult cuplug_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    if (!cuplug_on() && passes(dptr))
        return cuplug_core_freed_late(dptr) ? CUDA_SUCCESS
                                            : passed(cuplug_real.cuMemFreeAsync(dptr, hStream), CUPLUG_STAT_driver_frees);
    return free_async(dptr, named(hStream, CU_STREAM_LEGACY));
}

CUresult cuplug_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    if (!cuplug_on() && passes(dptr))
        return cuplug_core_freed_late(dptr) ? CUDA_SUCCESS
                                            : passed(cuplug_real.cuMemFreeAsync_ptsz(dptr, hStream), CUPLUG_STAT_driver_frees);
    return free_async(dptr, named(hStream, CU_STREAM_PER_THREAD));
}
