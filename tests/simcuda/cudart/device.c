/*
 * device.c — devices and contexts: binding the primary context where the program has made none current.
 */
#include "rt.h"

#include <pthread.h>
#include <string.h>

#define MAX_DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUcontext ctx;
    bool retained;
} primary[MAX_DEVICES];

static cudaError_t use(int device) {
    if (device < 0 || device >= MAX_DEVICES)
        return cudaErrorInvalidDevice;
    pthread_mutex_lock(&lock);
    cudaError_t r = cudaSuccess;
    if (!primary[device].retained) {
        r = (cudaError_t)rt_driver.cuDevicePrimaryCtxRetain[0](&primary[device].ctx, device);
        primary[device].retained = r == cudaSuccess;
    }
    CUcontext ctx = primary[device].ctx;
    pthread_mutex_unlock(&lock);
    return r != cudaSuccess ? r : (cudaError_t)rt_driver.cuCtxSetCurrent[0](ctx);
}

/* A primary context that was reset is current but dead until somebody retains it again. */
static bool dead(CUcontext ctx) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_DEVICES; i++)
        found |= primary[i].ctx == ctx && !primary[i].retained;
    pthread_mutex_unlock(&lock);
    return found;
}

cudaError_t rt_bind(void) {
    cudaError_t r = rt_start();
    if (r != cudaSuccess)
        return r;
    CUcontext ctx = NULL;
    r = (cudaError_t)rt_driver.cuCtxGetCurrent[0](&ctx);
    if (r != cudaSuccess || (ctx && !dead(ctx)))
        return r;
    return use(rt_self()->device);
}

bool rt_revive(void) {
    CUcontext ctx = NULL;
    int device = -1;
    if (rt_driver.cuCtxGetCurrent[0](&ctx) != CUDA_SUCCESS)
        return false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_DEVICES; i++)
        if (primary[i].ctx == ctx && primary[i].retained) {
            primary[i].retained = false;
            device = i;
        }
    pthread_mutex_unlock(&lock);
    return device >= 0 && use(device) == cudaSuccess;
}

cudaError_t rt_cudaRuntimeGetVersion(int *version) {
    if (!version)
        return cudaErrorInvalidValue;
    *version = SIM_CUDART;
    return cudaSuccess;
}

cudaError_t rt_cudaDriverGetVersion(int *version) {
    if (!version)
        return cudaErrorInvalidValue;
    *version = 0;
    return rt_start() == cudaErrorInsufficientDriver ? cudaSuccess : RT_CALL(cuDriverGetVersion, version);
}

cudaError_t rt_cudaGetDeviceCount(int *count) {
    if (!count)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_start();
    *count = r == cudaSuccess ? rt_devices : 0;
    return r;
}

cudaError_t rt_cudaGetDevice(int *device) {
    if (!device)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_start();
    if (r != cudaSuccess)
        return r;
    CUcontext ctx = NULL;
    r = RT_CALL(cuCtxGetCurrent, &ctx);
    *device = rt_self()->device;
    return r != cudaSuccess || !ctx || dead(ctx) ? r : RT_CALL(cuCtxGetDevice, device);
}

cudaError_t rt_cudaSetDevice(int device) {
    int count = 0;
    cudaError_t r = rt_start();
    if (r == cudaSuccess)
        r = RT_CALL(cuDeviceGetCount, &count);
    if (r != cudaSuccess)
        return r;
    if (device < 0 || device >= count)
        return cudaErrorInvalidDevice;
    rt_self()->device = device;
    return use(device);
}

cudaError_t rt_cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    cudaError_t r = rt_start();
    CUcontext old = NULL;
    if (r == cudaSuccess)
        r = RT_CALL(cuCtxGetCurrent, &old);
    if (r == cudaSuccess)
        r = use(device);
    return r != cudaSuccess ? r : RT_CALL(cuCtxSetCurrent, old);
}

cudaError_t rt_cudaDeviceSynchronize(void) {
    RT_BOUND(cuCtxSynchronize);
}

cudaError_t rt_cudaDeviceReset(void) {
    int device = rt_self()->device;
    cudaError_t r = rt_start();
    if (r != cudaSuccess)
        return r;
    CUcontext ctx = NULL;
    int current;
    if (RT_CALL(cuCtxGetCurrent, &ctx) == cudaSuccess && ctx && RT_CALL(cuCtxGetDevice, &current) == cudaSuccess)
        device = current; /* a context with a lasting error does not say its device */
    pthread_mutex_lock(&lock);
    primary[device].retained = false;
    pthread_mutex_unlock(&lock);
    return RT_CALL(cuDevicePrimaryCtxReset, device);
}

cudaError_t rt_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    cudaError_t r = rt_start();
    return r != cudaSuccess ? r : RT_CALL(cuDeviceGetAttribute, value, (CUdevice_attribute)attribute, device);
}

cudaError_t rt_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (!p)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_start();
    if (r != cudaSuccess)
        return r;
    memset(p, 0, sizeof(*p));
    r = RT_CALL(cuDeviceGetName, p->name, sizeof(p->name), device);
    if (r == cudaSuccess)
        r = RT_CALL(cuDeviceTotalMem, &p->totalGlobalMem, device);
    const struct {
        CUdevice_attribute attribute;
        int *field;
    } fields[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &p->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &p->minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p->multiProcessorCount},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p->warpSize},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &p->unifiedAddressing},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &p->managedMemory},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &p->concurrentManagedAccess},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &p->memoryPoolsSupported},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p->maxThreadsPerBlock},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && r == cudaSuccess; i++)
        r = RT_CALL(cuDeviceGetAttribute, fields[i].field, fields[i].attribute, device);
    return r;
}

cudaError_t rt_cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    RT_BOUND(cuCtxGetStreamPriorityRange, least, greatest);
}

cudaError_t rt_cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    cudaError_t r = rt_start();
    return r != cudaSuccess ? r : RT_CALL(cuDeviceCanAccessPeer, can, device, peer);
}

static cudaError_t peer_context(int peer, CUcontext *ctx) {
    CUcontext current = NULL;
    int device = -1;
    cudaError_t r = rt_bind();
    if (r == cudaSuccess)
        r = RT_CALL(cuCtxGetDevice, &device);
    if (r == cudaSuccess && peer == device)
        return cudaErrorPeerAccessUnsupported;
    if (r == cudaSuccess)
        r = RT_CALL(cuCtxGetCurrent, &current);
    if (r == cudaSuccess)
        r = use(peer);
    if (r == cudaSuccess)
        r = RT_CALL(cuCtxGetCurrent, ctx);
    RT_CALL(cuCtxSetCurrent, current);
    return r;
}

cudaError_t rt_cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    CUcontext ctx;
    cudaError_t r = peer_context(peer, &ctx);
    return r != cudaSuccess ? r : RT_CALL(cuCtxEnablePeerAccess, ctx, flags);
}

cudaError_t rt_cudaDeviceDisablePeerAccess(int peer) {
    CUcontext ctx;
    cudaError_t r = peer_context(peer, &ctx);
    return r != cudaSuccess ? r : RT_CALL(cuCtxDisablePeerAccess, ctx);
}

cudaError_t rt_cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned version, unsigned long long flags,
                                                enum cudaDriverEntryPointQueryResult *status) {
    if (!symbol || !fn)
        return cudaErrorInvalidValue;
    cudaError_t r = rt_start();
    if (r != cudaSuccess)
        return r;
    if ((flags & 3) == 0)
        flags |= rt_self()->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *fn = rt_look_up(symbol, (int)version, flags, &found);
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return *fn || status ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t rt_cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
                                       enum cudaDriverEntryPointQueryResult *status) {
    int version = SIM_CUDART, driver = 0;
    if (rt_start() == cudaSuccess && RT_CALL(cuDriverGetVersion, &driver) == cudaSuccess && driver < version)
        version = driver;
    return rt_cudaGetDriverEntryPointByVersion(symbol, fn, (unsigned)version, flags, status);
}
