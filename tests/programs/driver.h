/*
 * For programs that use CUDA's driver directly: checked calls, the primary context, the pretended kernel.
 */
#ifndef CUPLUG_TEST_DRIVER_H
#define CUPLUG_TEST_DRIVER_H

#include "program.h"
#include <cuda.h>

#define CU(call) driver_must(call, #call, __FILE__, __LINE__)

static inline void driver_must(CUresult error, const char *call, const char *file, int line) {
    if (error != CUDA_SUCCESS)
        die("%s:%d: %s: error %d", file, line, call, (int)error);
}

/* Initialises the driver and makes the device's primary context current in this thread. */
static inline CUcontext use_primary(int ordinal) {
    CUdevice device;
    CUcontext context;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, ordinal));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    return context;
}

static inline CUstream new_stream(unsigned flags) {
    CUstream stream;
    CU(cuStreamCreate(&stream, flags));
    return stream;
}

static inline void CUDA_CB sleep_in_stream(void *ms) {
    sleep_ms((int)(intptr_t)ms);
}

static inline void slow_fill(CUdeviceptr memory, int value, size_t size, CUstream stream, int ms) {
    CU(cuLaunchHostFunc(stream, sleep_in_stream, (void *)(intptr_t)ms));
    CU(cuMemsetD8Async(memory, (unsigned char)value, size, stream));
}

#define PATIENCE_MS 3000 /* for a kernel that waits for a later launch: how long it is given until something must be wrong */

/* Such a kernel: until the unsigned at `flag` is not 0; it gives up a little later than who watches it. */
static inline void CUDA_CB wait_for_flag(void *flag) {
    double end = now_ms() + PATIENCE_MS + 500;
    while (__atomic_load_n((unsigned *)flag, __ATOMIC_ACQUIRE) == 0 && now_ms() < end)
        sleep_ms(1);
}

static inline unsigned long long pool_figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 7;
    CU(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static inline size_t wrong_on_device(CUdeviceptr memory, int value, size_t size) {
    unsigned char *copy = malloc(size);
    if (!copy)
        die("no host memory");
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH(copy, memory, size));
    size_t wrong = wrong_bytes(copy, value, size);
    free(copy);
    return wrong;
}

#endif
