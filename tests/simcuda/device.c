/*
 * device.c — cuInit, the devices and what can be asked about them. Everything starts here, once, at cuInit.
 *
 * A forked child of an initialised process never gets past the entry points (wrappers.c looks at sim.forked), so nothing
 * here needs to survive a fork. After exit handlers ran (sim.ended) the driver is gone for good.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_state sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static pthread_key_t thread_key;
static bool have_key; /* not in a program that took them all; its threads' streams stay */
static struct sim_thread *threads; /* all of them: leak checkers do not look into every library's thread-local storage */
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void thread_gone(void *arg) {
    struct sim_thread *self = arg;
    if (__atomic_load_n(&sim.forked, __ATOMIC_ACQUIRE)) /* a thread of the parent's may have held the locks */
        return;
    sim_lock();
    for (int i = 0; i < sim.devices; i++)
        if (sim.device[i].primary) {
            struct sim_stream *stream = sim_stream_find_per_thread(sim.device[i].primary, self->id);
            if (stream)
                sim_stream_destroy(stream);
        }
    sim_unlock();
    pthread_mutex_lock(&threads_lock);
    struct sim_thread **link = &threads;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    pthread_mutex_unlock(&threads_lock);
    free(self);
}

static void make_key(void) {
    have_key = pthread_key_create(&thread_key, thread_gone) == 0;
}

struct sim_thread *sim_self(void) {
    static __thread struct sim_thread *self;
    static unsigned long long ids;
    if (!self) {
        pthread_once(&thread_once, make_key);
        self = calloc(1, sizeof(*self));
        pthread_mutex_lock(&threads_lock);
        self->id = ++ids;
        self->next = threads;
        threads = self;
        pthread_mutex_unlock(&threads_lock);
        if (have_key)
            pthread_setspecific(thread_key, self);
    }
    return self;
}

static void forked_child(void) {
    if (__atomic_load_n(&sim.initialised, __ATOMIC_ACQUIRE))
        __atomic_store_n(&sim.forked, 1, __ATOMIC_RELEASE);
}

static void process_ends(void) {
    __atomic_store_n(&sim.ended, 1, __ATOMIC_RELEASE);
}

CUresult sim_cuInit(unsigned flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (sim.initialised)
        return sim_unlock_return(CUDA_SUCCESS);
    if (sim_knobs.devices == 0)
        return sim_unlock_return(CUDA_ERROR_NO_DEVICE);
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < sim_knobs.devices && r == CUDA_SUCCESS; i++) {
        struct sim_device *device = &sim.device[i];
        device->ordinal = i;
        device->total_pages = sim_knobs.memory / SIM_PAGE;
        r = sim_pages_setup(device);
        if (r == CUDA_SUCCESS)
            sim_pools_setup(device);
    }
    if (r == CUDA_SUCCESS) {
        sim.devices = sim_knobs.devices;
        pthread_atfork(NULL, NULL, forked_child);
        atexit(process_ends);
        __atomic_store_n(&sim.initialised, 1, __ATOMIC_RELEASE);
    }
    return sim_unlock_return(r);
}

CUresult sim_cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_knobs.driver;
    return CUDA_SUCCESS;
}

static bool valid(CUdevice device) {
    return device >= 0 && device < sim.devices;
}

CUresult sim_cuDeviceGetCount(int *count) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim.devices;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int len, CUdevice device) {
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)len, "Simulated GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, 0, sizeof(*uuid));
    memcpy(uuid->bytes, "simcuda", 7);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return sim_cuDeviceGetUuid_v2(uuid, device);
}

CUresult sim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim.device[device].total_pages * SIM_PAGE;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetPCIBusId(char *id, int len, CUdevice device) {
    if (!id || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)len, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *value = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 16;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *value = 1000000;
        break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
        *value = 512;
        break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        *value = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = device + 1;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *value = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        *value = !sim_knobs.basic_managed;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        *value = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}
