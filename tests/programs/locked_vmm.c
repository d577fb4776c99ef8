/*
 * A library as NCCL is one: opened RTLD_LOCAL, it finds the driver itself, holds a mutex of its own around calls for virtual
 * memory, and makes them from several threads, for memory of the device and of the host. plugin_run("2") says how many threads.
 */
#include "program.h"
#include <cuda.h>
#include <dlfcn.h>

#define ROUNDS 50
#define SIZE (4 * MIB)
#define CALLS                                                                                                                    \
    X(cuInit)                                                                                                                    \
    X(cuDevicePrimaryCtxRetain)                                                                                                  \
    X(cuCtxSetCurrent)                                                                                                           \
    X(cuMemCreate)                                                                                                               \
    X(cuMemAddressReserve)                                                                                                       \
    X(cuMemMap)                                                                                                                  \
    X(cuMemSetAccess)                                                                                                            \
    X(cuMemUnmap)                                                                                                                \
    X(cuMemRelease)                                                                                                              \
    X(cuMemAddressFree)                                                                                                          \
    X(cuMemAlloc)                                                                                                                \
    X(cuMemFree)

#define X(call) static __typeof__(call) *p_##call;
CALLS
#undef X

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUcontext context;
static int failed;

static bool map_once(CUmemLocationType place) {
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = place}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bool fine;
    if (p_cuMemCreate(&handle, SIZE, &what, 0) != CUDA_SUCCESS)
        return place != CU_MEM_LOCATION_TYPE_DEVICE; /* a driver may not have it for the host */
    fine = p_cuMemAddressReserve(&address, SIZE, 0, 0, 0) == CUDA_SUCCESS &&
           p_cuMemMap(address, SIZE, 0, handle, 0) == CUDA_SUCCESS &&
           p_cuMemSetAccess(address, SIZE, &access, 1) == CUDA_SUCCESS && p_cuMemUnmap(address, SIZE) == CUDA_SUCCESS;
    return p_cuMemRelease(handle) == CUDA_SUCCESS && p_cuMemAddressFree(address, SIZE) == CUDA_SUCCESS && fine;
}

static void *work(void *unused) {
    (void)unused;
    p_cuCtxSetCurrent(context);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr memory;
        pthread_mutex_lock(&mutex);
        failed += !map_once(i % 2 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE);
        if (p_cuMemAlloc(&memory, 64 * KIB) != CUDA_SUCCESS || p_cuMemFree(memory) != CUDA_SUCCESS)
            failed++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

__attribute__((visibility("default"))) int plugin_run(const char *threads);

int plugin_run(const char *threads) {
    pthread_t thread[8];
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int count = atoi(threads);
#define STRING(x) #x
#define X(call)                                                                                                                  \
    *(void **)&p_##call = driver ? dlsym(driver, STRING(call)) : NULL;                                                           \
    if (!p_##call)                                                                                                               \
        die("no " #call);
    CALLS
#undef X
    if (p_cuInit(0) != CUDA_SUCCESS || p_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        die("no context");
    for (int i = 0; i < count; i++)
        start_thread(&thread[i], work, NULL);
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    printf("failed: %d\n", failed);
    return 0;
}
