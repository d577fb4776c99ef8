/*
 * runtime_api.c: the runtime front, for programs with a shared cudart. It serves a call itself only where the runtime would certainly have done
 * nothing but call the driver: this cudart (12 or newer) has succeeded before in this thread, a context is current, and the backend needs no driver.
 * Everything else, and every failure, goes to the caller's own cudart, whose driver call lands in the driver front; so the runtime's state (first
 * use, last error) is its own. The only file that knows cudaError_t.
 */
#include "real.h"

#include "config/options.h"
#include "context.h"
#include "core.h"
#include "driver_api.h"
#include "init.h"
#include "runtime_find.h"

#include <stdlib.h>

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* A profiler injected into the process is to see the runtime's calls. */
static bool front_allowed(void) {
    static _Atomic int allowed; /* 0 not asked yet, 1 yes, 2 no */
    int answer = atomic_load_explicit(&allowed, memory_order_relaxed);

    if (!answer) {
        answer = cuplug_core_fast() && cuplug_options.runtime_front && !getenv("CUDA_INJECTION64_PATH") ? 1 : 2;
        atomic_store_explicit(&allowed, answer, memory_order_relaxed);
    }
    return answer == 1;
}

/* May a call through `runtime` be served here? */
static bool certain(const struct cuplug_runtime *runtime) {
    struct cuplug_context *context;

    if (!runtime || runtime != cuplug_self.ready || !cuplug_on() ||
        cuplug_self.ready_epoch != atomic_load_explicit(&cuplug_context_epoch, memory_order_acquire))
        return false;
    context = cuplug_context_current();
    return context && cuplug_core_route(context, false) != CUPLUG_BACKEND_DIRECT;
}

/* The caller's own cudart, about to be called. */
static const struct cuplug_runtime *own_runtime(const void *caller) {
    cuplug_self.entered = false;
    return cuplug_runtime_find(caller, true);
}

/* After a call of the runtime's own: if it succeeded, and by way of the driver front, this thread may take the short way from now
 * on. A runtime that was opened with RTLD_DEEPBIND reaches the driver past us; what it allocates is to be freed there, too. */
static cudaError_t learn(const struct cuplug_runtime *runtime, cudaError_t result) {
    cuplug_self.handoff = CUPLUG_HANDOFF_NONE;
    if (result == cudaSuccess && cuplug_self.entered && runtime->version >= 12000 && cuplug_on() && front_allowed()) {
        cuplug_self.ready_epoch = atomic_load_explicit(&cuplug_context_epoch, memory_order_acquire);
        cuplug_self.ready = runtime;
    }
    return result;
}

/* There is no runtime, or it lacks the function: nobody will collect what was handed to it. */
static cudaError_t no_runtime(void) {
    cuplug_self.handoff = CUPLUG_HANDOFF_NONE;
    return cudaErrorInsufficientDriver;
}

/* Did the driver front's answer settle the call? If not, the runtime is to hear it and say it in its own way. */
static bool settled(enum cuplug_handoff kind, CUresult result) {
    if (result == CUDA_SUCCESS)
        return true;
    cuplug_self.handoff_result = result;
    cuplug_self.handoff = kind;
    return false;
}

cudaError_t cuplug_cudaMalloc(void **devPtr, size_t size) {
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);

    if (devPtr && size && certain(runtime) && settled(CUPLUG_HANDOFF_ALLOC, cuplug_cuMemAlloc((CUdeviceptr *)devPtr, size)))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime ? learn(runtime, runtime->cudaMalloc(devPtr, size)) : no_runtime();
}

cudaError_t cuplug_cudaFree(void *devPtr) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_SYNC};
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);
    CUresult result;

    if (devPtr && certain(runtime) && cuplug_core_free((CUdeviceptr)devPtr, &release, true, &result) == CUPLUG_FREED &&
        settled(CUPLUG_HANDOFF_FREE, result))
        return cudaSuccess;
    if (cuplug_core_freed_late((CUdeviceptr)devPtr))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime ? learn(runtime, runtime->cudaFree(devPtr)) : no_runtime();
}

cudaError_t cuplug_cudaMallocAsync(void **devPtr, size_t size, cudaStream_t stream) {
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);

    if (devPtr && size && certain(runtime) && settled(CUPLUG_HANDOFF_ALLOC, cuplug_cuMemAllocAsync((CUdeviceptr *)devPtr, size, stream)))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime && runtime->cudaMallocAsync ? learn(runtime, runtime->cudaMallocAsync(devPtr, size, stream)) : no_runtime();
}

cudaError_t cuplug_cudaMallocAsync_ptsz(void **devPtr, size_t size, cudaStream_t stream) {
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);

    if (devPtr && size && certain(runtime) &&
        settled(CUPLUG_HANDOFF_ALLOC, cuplug_cuMemAllocAsync_ptsz((CUdeviceptr *)devPtr, size, stream)))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime && runtime->cudaMallocAsync_ptsz ? learn(runtime, runtime->cudaMallocAsync_ptsz(devPtr, size, stream))
                                                    : no_runtime();
}

cudaError_t cuplug_cudaFreeAsync(void *devPtr, cudaStream_t stream) {
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);

    if (devPtr && certain(runtime) && settled(CUPLUG_HANDOFF_FREE, cuplug_cuMemFreeAsync((CUdeviceptr)devPtr, stream)))
        return cudaSuccess;
    if (cuplug_core_freed_late((CUdeviceptr)devPtr))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime && runtime->cudaFreeAsync ? learn(runtime, runtime->cudaFreeAsync(devPtr, stream)) : no_runtime();
}

cudaError_t cuplug_cudaFreeAsync_ptsz(void *devPtr, cudaStream_t stream) {
    const struct cuplug_runtime *runtime = cuplug_runtime_find(CALLER, false);

    if (devPtr && certain(runtime) && settled(CUPLUG_HANDOFF_FREE, cuplug_cuMemFreeAsync_ptsz((CUdeviceptr)devPtr, stream)))
        return cudaSuccess;
    if (cuplug_core_freed_late((CUdeviceptr)devPtr))
        return cudaSuccess;
    runtime = own_runtime(CALLER);
    return runtime && runtime->cudaFreeAsync_ptsz ? learn(runtime, runtime->cudaFreeAsync_ptsz(devPtr, stream)) : no_runtime();
}
