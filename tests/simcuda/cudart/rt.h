/*
 * rt.h — what the files of the simulated runtime share: the driver's entry points and the calling thread's state.
 *
 * The runtime keeps no state of its own beyond that and which primary contexts it retained; everything is the driver's.
 */
#ifndef RT_H
#define RT_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#undef __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>

#include <stdbool.h>

#define RT_HIDDEN __attribute__((visibility("hidden")))

/* Each function twice: [0] legacy, [1] per-thread default stream (the same one where there is no difference). */
struct rt_driver {
#define DRIVER(name, since, export) PFN_##name##_v##since name[2];
#define STREAM DRIVER
#define SYNC DRIVER
#include "driver.def"
#undef DRIVER
#undef STREAM
#undef SYNC
    PFN_cuGetProcAddress_v12000 look_up;
    PFN_cuGetProcAddress_v11030 look_up_v1;
};
extern RT_HIDDEN struct rt_driver rt_driver;

struct rt_thread {
    cudaError_t last_error;
    int device;
    bool per_thread; /* the running entry point is a _ptsz or _ptds one */
};
RT_HIDDEN struct rt_thread *rt_self(void);

extern RT_HIDDEN int rt_devices;      /* asked at the start, so that even a forked child has an answer */
RT_HIDDEN cudaError_t rt_start(void); /* driver found and initialised */
RT_HIDDEN cudaError_t rt_bind(void);  /* … and a context current */
RT_HIDDEN bool rt_revive(void);       /* retains the current primary context anew, which was reset past the runtime; false: it is another */
RT_HIDDEN void *rt_look_up(const char *name, int version, unsigned long long flags, CUdriverProcAddressQueryResult *status);

#define RT_DRIVER(name) (rt_driver.name[rt_self()->per_thread])
/* The driver's answer as the runtime's: the numbers are the same. */
#define RT_CALL(name, ...) (RT_DRIVER(name) ? (cudaError_t)RT_DRIVER(name)(__VA_ARGS__) : cudaErrorCallRequiresNewerDriver)
#define RT_BOUND(name, ...)                                                                                                      \
    do {                                                                                                                         \
        cudaError_t bound_ = rt_bind();                                                                                          \
        if (bound_ == cudaSuccess && (bound_ = RT_CALL(name, __VA_ARGS__)) == cudaErrorContextIsDestroyed && rt_revive())        \
            bound_ = RT_CALL(name, __VA_ARGS__);                                                                                 \
        return bound_;                                                                                                           \
    } while (0)

#endif
