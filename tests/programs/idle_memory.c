/*
 * What was freed is there for whatever comes next, also where no record of the device's progress could be made. One argument:
 * "others": memory of other kinds (cuMemCreate, arrays) after most of the device was freed. "capturing": allocations and frees while
 * a stream captures, many times the device's memory in all. "threads": a thread per request, each with its own default stream, frees
 * in stream order and ends. "hopeless": a request that nothing can satisfy is refused at once, whatever runs.
 * Run with SIMCUDA_MEMORY=1G.
 */
#include "driver.h"

static void others(void) {
    CUdeviceptr memory;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 16384, .Height = 8192, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 512, .Height = 512, .Depth = 512, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    for (int i = 0; i < 3; i++) {
        CU(cuMemAlloc(&memory, 900 * MIB));
        CU(cuMemFree(memory));
        if (i == 0) {
            printf("cuMemCreate: %d\n", (int)cuMemCreate(&handle, 512 * MIB, &where, 0));
            CU(cuMemRelease(handle));
        } else {
            printf("array: %d\n", (int)(i == 1 ? cuArrayCreate(&array, &flat) : cuArray3DCreate(&array, &deep)));
            CU(cuArrayDestroy(array));
        }
    }
}

static void capturing(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUdeviceptr target, memory;
    CUresult result = CUDA_SUCCESS;
    int count = 0;
    CU(cuMemAlloc(&target, 4096));
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU(cuMemsetD8Async(target, 1, 4096, stream));
    while (count < 200 && (result = cuMemAlloc(&memory, 20 * MIB)) == CUDA_SUCCESS) {
        CU(cuMemFree(memory));
        count++;
    }
    printf("allocations in a row: %d, %d\n", count, (int)result);
    printf("the capture's end: %d\n", (int)cuStreamEndCapture(stream, &graph));
}

static void *request(void *context) {
    CUdeviceptr memory;
    CU(cuCtxSetCurrent(context));
    CU(cuMemAllocAsync(&memory, 12 * MIB, CU_STREAM_PER_THREAD));
    CU(cuMemsetD8Async(memory, 1, 4096, CU_STREAM_PER_THREAD));
    CU(cuMemFreeAsync(memory, CU_STREAM_PER_THREAD));
    CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

static void threads(CUcontext context) {
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        start_thread(&thread, request, context);
        pthread_join(thread, NULL);
    }
    printf("requests: done\n");
}

static void hopeless(void) {
    CUdeviceptr memory;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&memory, 100 * MIB));
    slow_fill(memory, 1, 4096, stream, 1000);
    CU(cuMemFreeAsync(memory, stream));
    CUresult result = cuMemAllocManaged(&memory, (size_t)1 << 50, CU_MEM_ATTACH_GLOBAL);
    printf("a PiB of managed memory: %d, the kernel: %s\n", (int)result, cuStreamQuery(stream) == CUDA_SUCCESS ? "over" : "runs");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUcontext context = use_primary(0);
    if (strcmp(what, "others") == 0)
        others();
    else if (strcmp(what, "capturing") == 0)
        capturing();
    else if (strcmp(what, "threads") == 0)
        threads(context);
    else
        hopeless();
    return 0;
}
