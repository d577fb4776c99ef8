/*
 * A driver for questions of looking up and calling: one context, host memory, no streams worth the name. It remembers which of
 * its functions ran last, so that a program can see where a looked-up address leads, with and without the shim.
 *
 * FAKE_MISSING=symbol: not offered by cuGetProcAddress (the test links without its export, too). FAKE_VERSION: what it says it
 * is. FAKE_MEMORY=bytes: its memory. FAKE_BLOCK=cuMemAlloc_v2|cuMemAllocManaged|cuMemFree_v2: the next such call waits for
 * fake_release(). Two variants are newer than any known driver's: cuMemAlloc_v3 and cuMemFreeAsync_v2, as of version 13010.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "program.h"
#include <cuda.h>
#include <dlfcn.h>

void fake_called(const char *symbol);
const char *fake_last_called(void);
int fake_blocked(void);
void fake_release(void);
int fake_timeouts(void);

static const char *last_called = "nothing";
static __thread CUcontext current = (CUcontext)0x1000;

void fake_called(const char *symbol) {
    __atomic_store_n(&last_called, symbol, __ATOMIC_RELAXED);
}

const char *fake_last_called(void) {
    return __atomic_exchange_n(&last_called, "nothing", __ATOMIC_RELAXED);
}

/* ---- Blocking inside a call ---- */

static int blocked, released, timeouts;

int fake_blocked(void) {
    return __atomic_load_n(&blocked, __ATOMIC_ACQUIRE);
}

void fake_release(void) {
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
}

int fake_timeouts(void) {
    return __atomic_load_n(&timeouts, __ATOMIC_ACQUIRE);
}

static void block_if_asked(const char *symbol) {
    const char *asked = getenv("FAKE_BLOCK");
    if (!asked || strcmp(asked, symbol) != 0 || __atomic_load_n(&released, __ATOMIC_ACQUIRE))
        return;
    if (__atomic_exchange_n(&blocked, 1, __ATOMIC_ACQ_REL))
        return; /* one at a time: the other thread must get through */
    double end = now_ms() + 3000;
    while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE)) {
        if (now_ms() > end) {
            __atomic_fetch_add(&timeouts, 1, __ATOMIC_RELEASE);
            fake_release();
        }
        sleep_ms(1);
    }
}

/* ---- Memory ---- */

static size_t used;

static size_t memory_size(void) {
    const char *text = getenv("FAKE_MEMORY");
    return text ? strtoull(text, NULL, 10) : 64 * MIB;
}

static CUresult allocate(const char *symbol, CUdeviceptr *memory, size_t size) {
    fake_called(symbol);
    if (!memory || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = 0;
    size_t *block = NULL;
    if (size <= memory_size() && __atomic_add_fetch(&used, size, __ATOMIC_RELAXED) > memory_size())
        __atomic_sub_fetch(&used, size, __ATOMIC_RELAXED);
    else if (size <= memory_size() && posix_memalign((void **)&block, 2 * MIB, size + 2 * MIB) != 0)
        block = NULL;
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *block = size;
    *memory = (CUdeviceptr)block + 2 * MIB;
    return CUDA_SUCCESS;
}

static CUresult release(const char *symbol, CUdeviceptr memory) {
    fake_called(symbol);
    if (!memory)
        return CUDA_SUCCESS;
    size_t *block = (size_t *)(memory - 2 * MIB);
    __atomic_sub_fetch(&used, *block, __ATOMIC_RELAXED);
    free(block);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size) {
    block_if_asked(__func__);
    return allocate(__func__, memory, size);
}

CUresult cuMemAllocManaged(CUdeviceptr *memory, size_t size, unsigned flags) {
    (void)flags;
    block_if_asked(__func__);
    return allocate(__func__, memory, size);
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    block_if_asked(__func__);
    return release(__func__, memory);
}

/* The two flavours differ in what stream 0 means, and either may be called with the other's default stream by its own handle:
 * what counts is whose stream it is. */
static const char *flavour(const char *legacy, const char *per_thread, CUstream stream, CUstream zero) {
    return (stream ? stream : zero) == CU_STREAM_PER_THREAD ? per_thread : legacy;
}

#define FLAVOUR(symbol, zero) flavour(#symbol, #symbol "_ptsz", stream, zero)

CUresult cuMemAllocAsync(CUdeviceptr *memory, size_t size, CUstream stream) {
    return allocate(FLAVOUR(cuMemAllocAsync, CU_STREAM_LEGACY), memory, size);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *memory, size_t size, CUstream stream) {
    return allocate(FLAVOUR(cuMemAllocAsync, CU_STREAM_PER_THREAD), memory, size);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *memory, size_t size, CUmemoryPool pool, CUstream stream) {
    (void)pool;
    return allocate(FLAVOUR(cuMemAllocFromPoolAsync, CU_STREAM_LEGACY), memory, size);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *memory, size_t size, CUmemoryPool pool, CUstream stream) {
    (void)pool;
    return allocate(FLAVOUR(cuMemAllocFromPoolAsync, CU_STREAM_PER_THREAD), memory, size);
}

CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
    return release(FLAVOUR(cuMemFreeAsync, CU_STREAM_LEGACY), memory);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr memory, CUstream stream) {
    return release(FLAVOUR(cuMemFreeAsync, CU_STREAM_PER_THREAD), memory);
}

#undef FLAVOUR

/* The 32-bit interface of CUDA before 3.2: other types behind the same name. */
CUresult cuMemAlloc(CUdeviceptr_v1 *memory, unsigned size) {
    (void)memory, (void)size;
    fake_called(__func__);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree(CUdeviceptr_v1 memory) {
    (void)memory;
    fake_called(__func__);
    return CUDA_ERROR_INVALID_VALUE;
}

/* Future variants with arguments of their own. */
CUresult cuMemAlloc_v3(int flags, CUdeviceptr *memory, const void *description);
CUresult cuMemAlloc_v3(int flags, CUdeviceptr *memory, const void *description) {
    (void)flags, (void)memory, (void)description;
    fake_called(__func__);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync_v2(const void *description);
CUresult cuMemFreeAsync_v2(const void *description) {
    (void)description;
    fake_called(__func__);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuture(void);
CUresult cuFuture(void) {
    fake_called(__func__);
    return CUDA_SUCCESS;
}

/* ---- Just enough of everything else ---- */

int cuInit_impl(void);
int cuInit_impl(void) {
    return 17;
}

static bool is_own(void *address) {
    Dl_info mine, found;
    return address && dladdr((void *)cuInit_impl, &mine) && dladdr(address, &found) && mine.dli_fbase == found.dli_fbase;
}

/* WSL's driver finds its own implementation by its own handle; a layer that ignores the handle sends it round in circles. */
CUresult cuInit(unsigned flags) {
    static int depth;
    (void)flags;
    fake_called(__func__);
    if (__atomic_add_fetch(&depth, 1, __ATOMIC_RELAXED) > 4)
        return CUDA_ERROR_UNKNOWN;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*implementation)(void) = self ? (int (*)(void))dlsym(self, "cuInit_impl") : NULL;
    bool own = self && is_own(dlsym(self, "cuInit")) && is_own(dlsym(self, "cuMemAlloc_v2"));
    __atomic_sub_fetch(&depth, 1, __ATOMIC_RELAXED);
    return implementation && implementation() == 17 && own ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
    const char *text = getenv("FAKE_VERSION");
    *version = text ? atoi(text) : 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    return *count = 1, CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    return *device = ordinal, CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    return *context = current, CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    return current = context, CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return current = context, CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    return context ? *context = current : NULL, CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    return *device = 0, CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    return (void)context, *id = 1, CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
    return CUDA_SUCCESS;
}
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
    return (void)context, (void)event, CUDA_SUCCESS;
}
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
    return (void)context, (void)event, CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned flags) {
    return (void)flags, *event = (CUevent)0x2000, CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
    return (void)event, CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
    return (void)event, CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    return (void)event, (void)stream, CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
    return (void)event, CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return (void)stream, *status = 0, CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    return (void)stream, *context = current, CUDA_SUCCESS;
}
CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
    return *id = (uintptr_t)stream, CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    return *mode = 0, CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    fake_called(__func__);
    return context ? *context = (CUcontext)0x1000, CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    fake_called(__func__);
    if (!available || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *available = memory_size() - __atomic_load_n(&used, __ATOMIC_RELAXED);
    *total = memory_size();
    return CUDA_SUCCESS;
}

/* ---- Looking up ---- */

enum { ANY, LEGACY, PER_THREAD };

static const struct entry {
    const char *export, *asked;
    int version, stream;
    void *address;
} entries[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) {#export, asked, version, stream, (void *)export},
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
    {"cuMemAlloc", "cuMemAlloc", 2000, ANY, (void *)cuMemAlloc},
    {"cuMemFree", "cuMemFree", 2000, ANY, (void *)cuMemFree},
    {"cuMemAlloc_v3", "cuMemAlloc", 13010, ANY, (void *)cuMemAlloc_v3},
    {"cuMemFreeAsync_v2", "cuMemFreeAsync", 13010, LEGACY, (void *)cuMemFreeAsync_v2},
    {"cuInit", "cuInit", 2000, ANY, (void *)cuInit},
};

static const struct entry *find(const char *asked, int version, bool per_thread) {
    const char *missing = getenv("FAKE_MISSING");
    const struct entry *best = NULL;
    for (size_t i = 0; i < COUNT_OF(entries); i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->asked, asked) != 0 || entry->version > version || (missing && strcmp(entry->export, missing) == 0))
            continue;
        if (entry->stream == (per_thread ? LEGACY : PER_THREAD))
            continue;
        if (!best || entry->version > best->version)
            best = entry;
    }
    return best;
}

CUresult cuGetProcAddress_v2(const char *asked, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    fake_called(__func__);
    if (!asked || !address)
        return CUDA_ERROR_INVALID_VALUE;
    const struct entry *entry = find(asked, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    *address = entry ? entry->address : strncmp(asked, "cuFuture", 8) == 0 ? (void *)cuFuture : NULL;
    if (status)
        *status = *address                      ? CU_GET_PROC_ADDRESS_SUCCESS
                  : find(asked, 1 << 30, false) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *asked, void **address, int version, cuuint64_t flags) {
    CUresult result = cuGetProcAddress_v2(asked, address, version, flags, NULL);
    fake_called(__func__);
    return result;
}
