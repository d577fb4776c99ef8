/*
 * exports.c — the runtime's exported functions, made from runtime.def, and its error state.
 *
 * Every failure becomes the calling thread's last error, NotReady included; cudaGetLastError hands it out once.
 */
#include "rt.h"

#define RUNTIME(stream, name, parameters, arguments) RT_HIDDEN cudaError_t rt_##name parameters;
#include "runtime.def"
#undef RUNTIME

static cudaError_t note(cudaError_t r) {
    if (r != cudaSuccess)
        rt_self()->last_error = r;
    return r;
}

#define EXPORT(symbol, name, thread, parameters, arguments)                                                                      \
    cudaError_t symbol parameters;                                                                                               \
    cudaError_t symbol parameters {                                                                                              \
        rt_self()->per_thread = thread;                                                                                          \
        return note(rt_##name arguments);                                                                                        \
    }
#define ANY_EXPORTS(name, ...) EXPORT(name, name, false, __VA_ARGS__)
#define PTSZ_EXPORTS(name, ...) EXPORT(name, name, false, __VA_ARGS__) EXPORT(name##_ptsz, name, true, __VA_ARGS__)
#define PTDS_EXPORTS(name, ...) EXPORT(name, name, false, __VA_ARGS__) EXPORT(name##_ptds, name, true, __VA_ARGS__)
#define RUNTIME(stream, name, parameters, arguments) stream##_EXPORTS(name, parameters, arguments)
#include "runtime.def"
#undef RUNTIME

cudaError_t cudaGetLastError(void) {
    cudaError_t r = rt_self()->last_error;
    rt_self()->last_error = cudaSuccess;
    return r;
}

cudaError_t cudaPeekAtLastError(void) {
    return rt_self()->last_error;
}

/* The names differ from the driver's, the texts do not. */
const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(e)                                                                                                                  \
    case e:                                                                                                                      \
        return #e;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue) NAME(cudaErrorMemoryAllocation) NAME(cudaErrorInitializationError)
            NAME(cudaErrorCudartUnloading) NAME(cudaErrorInvalidDevice) NAME(cudaErrorNoDevice) NAME(cudaErrorInvalidPitchValue)
                NAME(cudaErrorInsufficientDriver) NAME(cudaErrorCallRequiresNewerDriver) NAME(cudaErrorDeviceUninitialized)
                    NAME(cudaErrorInvalidResourceHandle) NAME(cudaErrorIllegalState) NAME(cudaErrorSymbolNotFound)
                        NAME(cudaErrorNotReady) NAME(cudaErrorIllegalAddress) NAME(cudaErrorPeerAccessAlreadyEnabled)
                        NAME(cudaErrorPeerAccessUnsupported)
                            NAME(cudaErrorPeerAccessNotEnabled) NAME(cudaErrorContextIsDestroyed)
                                NAME(cudaErrorHostMemoryAlreadyRegistered) NAME(cudaErrorHostMemoryNotRegistered)
                                    NAME(cudaErrorNotPermitted) NAME(cudaErrorNotSupported)
                                        NAME(cudaErrorStreamCaptureUnsupported) NAME(cudaErrorStreamCaptureInvalidated)
                                            NAME(cudaErrorStreamCaptureMerge) NAME(cudaErrorStreamCaptureUnmatched)
                                                NAME(cudaErrorStreamCaptureUnjoined) NAME(cudaErrorStreamCaptureIsolation)
                                                    NAME(cudaErrorStreamCaptureImplicit) NAME(cudaErrorCapturedEvent)
                                                        NAME(cudaErrorStreamCaptureWrongThread) NAME(cudaErrorAlreadyMapped)
                                                            NAME(cudaErrorUnknown)
#undef NAME
                                                                default : return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    const char *text = NULL;
    if (error == cudaErrorInsufficientDriver)
        return "CUDA driver version is insufficient for CUDA runtime version";
    if (error == cudaErrorCallRequiresNewerDriver)
        return "API call is not supported in the installed CUDA driver";
    if (rt_start() == cudaSuccess && rt_driver.cuGetErrorString[0])
        rt_driver.cuGetErrorString[0]((CUresult)error, &text);
    return text ? text : "unrecognized error code";
}
