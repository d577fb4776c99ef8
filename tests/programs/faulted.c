/*
 * A kernel faults, and the program goes on allocating and freeing. Natively the first call that comes upon the fault says it, and
 * from then on every call does. A cache need not call the driver for each block, so it may be a little later; but it must be
 * soon, for a program that looks at allocations only, at frees only, or uses one stream only. Without arguments: all errors that
 * last, all these programs. "wait": a cudaFree that waits says what went wrong meanwhile (every backend that waits does).
 */
#include "driver.h"
#include <dlfcn.h>

#define SOON 200 /* rounds */

static CUresult (*fault_with)(CUcontext, CUresult), (*fault_unseen)(CUcontext, CUresult);
static CUcontext context;
static CUdevice device;
static CUstream stream;

static const CUresult lasting[] = {
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUDA_ERROR_EXTERNAL_DEVICE,
};

/* Each: what the calls that the program looks at say in one round. */
static CUresult by_alloc(size_t size) {
    CUdeviceptr memory;
    CUresult result = cuMemAlloc(&memory, size);
    if (result == CUDA_SUCCESS)
        cuMemFree(memory);
    return result;
}

static CUresult by_free(size_t size) {
    CUdeviceptr memory;
    cuMemAlloc(&memory, size);
    return cuMemFree(memory); /* perhaps of 0 */
}

static CUresult in_stream(size_t size) {
    CUdeviceptr memory;
    CUresult result = cuMemAllocAsync(&memory, size, stream);
    if (result == CUDA_SUCCESS)
        cuMemFreeAsync(memory, stream);
    return result;
}

static CUresult in_stream_by_free(size_t size) {
    CUdeviceptr memory;
    cuMemAllocAsync(&memory, size, stream);
    return cuMemFreeAsync(memory, stream);
}

static CUresult crossed(size_t size) {
    CUdeviceptr memory;
    CUresult result = cuMemAllocAsync(&memory, size, stream);
    if (result == CUDA_SUCCESS)
        cuMemFree(memory);
    return result;
}

static const struct {
    const char *name;
    CUresult (*round)(size_t size);
    size_t size;
} ways[] = {
    {"small blocks, looking at allocations", by_alloc, 64 * KIB},
    {"small blocks, looking at frees", by_free, 64 * KIB},
    {"large blocks, looking at allocations", by_alloc, 8 * MIB},
    {"large blocks, looking at frees", by_free, 8 * MIB},
    {"one stream, looking at allocations", in_stream, 64 * KIB},
    {"one stream, looking at frees", in_stream_by_free, 64 * KIB},
    {"one stream, large blocks", in_stream, 8 * MIB},
    {"one stream, freed by cuMemFree", crossed, 64 * KIB},
};

static bool afterwards(CUresult error, const CUdeviceptr *live) {
    CUdeviceptr memory = 7;
    bool same = cuMemAlloc(&memory, 4096) == error && memory == 0;
    same &= cuMemAlloc(&memory, 64 * MIB) == error && cuMemAllocAsync(&memory, 4096, stream) == error;
    same &= cuMemFree(live[0]) == error && cuMemFree(live[0]) == error && cuMemFree(0x1234) == error;
    same &= cuMemFreeAsync(live[1], stream) == error && cuMemFreeAsync(live[1], stream) == error;
    return same && cuMemFree(live[2]) == error && cuMemFree(live[3]) == error && cuCtxSynchronize() == error;
}

static void start(CUdeviceptr *live) {
    context = use_primary(0);
    CU(cuDeviceGet(&device, 0));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&live[0], 64 * KIB));
    CU(cuMemAlloc(&live[1], 4096));
    CU(cuMemAllocAsync(&live[2], 64 * KIB, stream));
    CU(cuMemAlloc(&live[3], 8 * MIB));
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        CU(ways[i].round(ways[i].size));
    CU(cuCtxSynchronize());
}

static void all_errors(size_t way, bool unseen) {
    int soon = 0, same = 0, alive = 0;
    for (size_t i = 0; i < COUNT_OF(lasting); i++) {
        CUdeviceptr live[4], memory;
        CUresult result = CUDA_SUCCESS;
        start(live);
        CU((unseen ? fault_unseen : fault_with)(context, lasting[i]));
        for (int round = 0; round < SOON && result == CUDA_SUCCESS; round++)
            result = ways[way].round(ways[way].size);
        soon += result == lasting[i];
        same += afterwards(lasting[i], live);
        CU(cuDevicePrimaryCtxReset(device));
        context = use_primary(0);
        alive += cuMemAlloc(&memory, 64 * KIB) == CUDA_SUCCESS &&
                 wrong_on_device(memory, cuMemsetD8(memory, 3, 64 * KIB) ? -1 : 3, 64 * KIB) == 0 &&
                 cuMemFree(memory) == CUDA_SUCCESS;
        CU(cuDevicePrimaryCtxReset(device));
    }
    printf("%s%s: of %zu errors said soon: %d, said by every call from then on: %d, over after a reset: %d\n", ways[way].name,
           unseen ? ", unseen" : "", COUNT_OF(lasting), soon, same, alive);
}

static void CUDA_CB late_fault(void *unused) {
    (void)unused;
    sleep_ms(KERNEL_MS);
    fault_unseen(context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void waiting_free(void) {
    CUdeviceptr live[4];
    start(live);
    CU(cuLaunchHostFunc(stream, late_fault, NULL));
    printf("a free that waits: %d\n", (int)cuMemFree(live[0]));
    printf("again: %d\n", (int)cuMemFree(live[0]));
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) {
        *(void **)&fault_with = dlsym(driver, "simcuda_fault_with");
        *(void **)&fault_unseen = dlsym(driver, "simcuda_fault_unseen");
    }
    if (!fault_with || !fault_unseen)
        skip("needs the simulated driver");
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        waiting_free();
        return 0;
    }
    for (size_t way = 0; way < COUNT_OF(ways); way++)
        for (int unseen = 0; unseen < 2; unseen++)
            all_errors(way, unseen);
    return 0;
}
