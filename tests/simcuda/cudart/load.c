/*
 * load.c — finds the driver as the real runtime does: dlopen, one dlsym for cuGetProcAddress_v2, and everything else
 * through what that returned; drivers without it serve plain dlsym. Lazily, at the first call.
 */
#include "rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct rt_driver rt_driver;
int rt_devices;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool found;  /* guarded by lock */
static int started; /* atomic: set once cuInit has succeeded */
static void *library;

struct rt_thread *rt_self(void) {
    static __thread struct rt_thread self;
    return &self;
}

void *rt_look_up(const char *name, int version, unsigned long long flags, CUdriverProcAddressQueryResult *status) {
    void *address = NULL;
    CUdriverProcAddressQueryResult ignored;
    if (rt_driver.look_up)
        rt_driver.look_up(name, &address, version, flags, status ? status : &ignored);
    else if (rt_driver.look_up_v1)
        rt_driver.look_up_v1(name, &address, version, flags);
    if (status && !rt_driver.look_up)
        *status = address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return address;
}

static void *find(const char *name, int version, unsigned long long flags, const char *export, const char *suffix) {
    if (rt_driver.look_up || rt_driver.look_up_v1)
        return rt_look_up(name, version, flags, NULL);
    char full[128];
    strcpy(full, export);
    strcat(full, suffix);
    return dlsym(library, full);
}

static bool load(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&rt_driver.look_up = dlsym(library, "cuGetProcAddress_v2");
    if (!rt_driver.look_up)
        *(void **)&rt_driver.look_up_v1 = dlsym(library, "cuGetProcAddress");
    if (rt_driver.look_up || rt_driver.look_up_v1) { /* the look-up itself is looked up as well */
        *(void **)&rt_driver.look_up_v1 = rt_look_up("cuGetProcAddress", 11030, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
        *(void **)&rt_driver.look_up = rt_look_up("cuGetProcAddress", 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    }
#define FIND(name, since, export, pts)                                                                                           \
    *(void **)&rt_driver.name[0] = find(#name, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, #export, "");                           \
    *(void **)&rt_driver.name[1] =                                                                                               \
        *pts ? find(#name, (since) > 7000 ? (since) : 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, #export, pts)         \
             : (void *)rt_driver.name[0];
#define DRIVER(name, since, export) FIND(name, since, export, "")
#define STREAM(name, since, export) FIND(name, since, export, "_ptsz")
#define SYNC(name, since, export) FIND(name, since, export, "_ptds")
#include "driver.def"
#undef DRIVER
#undef STREAM
#undef SYNC
#undef FIND
    return rt_driver.cuInit[0] != NULL;
}

cudaError_t rt_start(void) {
    if (__atomic_load_n(&started, __ATOMIC_ACQUIRE))
        return cudaSuccess;
    pthread_mutex_lock(&lock);
    cudaError_t r = cudaErrorInsufficientDriver;
    found = found || load();
    if (found)
        r = (cudaError_t)rt_driver.cuInit[0](0);
    if (r == cudaSuccess)
        r = (cudaError_t)rt_driver.cuDeviceGetCount[0](&rt_devices);
    if (r == cudaSuccess)
        __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return r;
}
