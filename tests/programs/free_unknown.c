/*
 * Frees what a tracker may not know: memory allocated past it, stream-ordered memory through the plain call, mapped memory,
 * pointers into a block, host memory, garbage. The codes are the driver's own, and what can be freed is freed. Argument: the
 * library bypass.so.
 */
#include "driver.h"
#include <dlfcn.h>

static CUresult (*real_alloc)(CUdeviceptr *, size_t);

static void find_real(const char *path) {
#ifdef SANITIZED
    (void)path;
    real_alloc = cuMemAlloc;
#else
    void *bypass = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *(*lookup)(const char *) = bypass ? (void *(*)(const char *))dlsym(bypass, "bypass_lookup") : NULL;
    real_alloc = lookup ? (CUresult(*)(CUdeviceptr *, size_t))lookup("cuMemAlloc_v2") : NULL;
    if (!real_alloc)
        die("%s", dlerror());
#endif
}

static void free_unseen(void) {
    CUdeviceptr memory;
    CU(real_alloc(&memory, 64 * MIB));
    printf("allocated past everyone: %d\n", (int)cuMemFree(memory));
    printf("again: %d\n", (int)cuMemFree(memory));
}

/* More than there is, one after the other: a free that only says so would run out. */
static void free_for_real(CUstream stream) {
    CUdeviceptr memory;
    int refused = 0;
    for (int i = 0; i < 100; i++) {
        CU(cuMemAllocAsync(&memory, 16 * MIB, stream));
        refused += cuMemFree(memory) != CUDA_SUCCESS;
    }
    printf("stream-ordered, plain free, a hundred times: refused %d\n", refused);
}

#pragma weak cuMemCreate /* not every simulated driver has virtual memory */
#pragma weak cuMemRelease
#pragma weak cuMemGetAllocationGranularity
#pragma weak cuMemAddressReserve
#pragma weak cuMemAddressFree
#pragma weak cuMemMap
#pragma weak cuMemUnmap

static void free_mapped(void) {
    if (!cuMemCreate)
        return;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr range;
    size_t granularity;
    CU(cuMemGetAllocationGranularity(&granularity, &where, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CU(cuMemAddressReserve(&range, granularity, 0, 0, 0));
    CU(cuMemCreate(&handle, granularity, &where, 0));
    CU(cuMemMap(range, granularity, 0, handle, 0));
    printf("mapped by the program: %d\n", (int)cuMemFree(range));
    CU(cuMemUnmap(range, granularity));
    CU(cuMemRelease(handle));
    CU(cuMemAddressFree(range, granularity));
}

int main(int argc, char **argv) {
    CUdeviceptr memory;
    int on_stack = 0;
    CUstream stream;
    use_primary(0);
    find_real(argc > 1 ? argv[1] : "bypass.so");
    stream = new_stream(CU_STREAM_NON_BLOCKING);

    free_unseen();
    CU(cuMemAllocAsync(&memory, 4096, stream));
    printf("stream-ordered, plain free: %d\n", (int)cuMemFree(memory));
    printf("again: %d\n", (int)cuMemFree(memory));
    printf("again, in stream order: %d\n", (int)cuMemFreeAsync(memory, stream));
    free_for_real(stream);
    CU(cuMemAlloc(&memory, 1 * MIB));
    printf("interior: %d\n", (int)cuMemFree(memory + 4096));
    printf("interior, in stream order: %d\n", (int)cuMemFreeAsync(memory + 4096, stream));
    printf("base: %d\n", (int)cuMemFree(memory));
    printf("base again: %d\n", (int)cuMemFree(memory));
    printf("base again, in stream order: %d\n", (int)cuMemFreeAsync(memory, stream));
    printf("garbage: %d %d\n", (int)cuMemFree(0x1234), (int)cuMemFree((CUdeviceptr)-1));
    printf("garbage, in stream order: %d\n", (int)cuMemFreeAsync(0x1234, stream));
    printf("stack: %d\n", (int)cuMemFree((CUdeviceptr)(uintptr_t)&on_stack));
    printf("nothing: %d %d\n", (int)cuMemFree(0), (int)cuMemFreeAsync(0, stream));
    free_mapped();
    CU(cuStreamSynchronize(stream));
    return 0;
}
