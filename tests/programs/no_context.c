/*
 * A thread that has made no context current calls the driver: each call answers with a code of its own, and nothing is counted
 * that did not happen. The main thread's block is freed from there too, which the driver allows.
 */
#include "driver.h"

#pragma weak cuMemCreate /* not every simulated driver has virtual memory */
#pragma weak cuMemRelease

static CUdeviceptr block;

static void *call_everything(void *unused) {
    (void)unused;
    CUdeviceptr memory = 7;
    size_t pitch = 7, available = 7, total = 7;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_HOST};
    printf("cuMemAlloc: %d\n", (int)cuMemAlloc(&memory, 4096));
    printf("cuMemAllocPitch: %d\n", (int)cuMemAllocPitch(&memory, &pitch, 100, 7, 4));
    printf("cuMemAllocManaged: %d\n", (int)cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    printf("cuMemAllocAsync: %d\n", (int)cuMemAllocAsync(&memory, 4096, 0));
    printf("cuMemFreeAsync: %d\n", (int)cuMemFreeAsync(block, 0));
    printf("cuMemGetInfo: %d\n", (int)cuMemGetInfo(&available, &total));
    printf("cuMemFree(0): %d\n", (int)cuMemFree(0));
    printf("cuMemFree(garbage): %d\n", (int)cuMemFree(0x1234));
    printf("cuMemFree(block of main): %d\n", (int)cuMemFree(block));
    printf("cuMemFree(the same again): %d\n", (int)cuMemFree(block));
    if (!cuMemCreate)
        return NULL;
    CUresult created = cuMemCreate(&handle, 2 * MIB, &where, 0);
    printf("cuMemCreate(host): %d\n", (int)created);
    if (created == CUDA_SUCCESS)
        CU(cuMemRelease(handle));
    return NULL;
}

int main(void) {
    pthread_t thread;
    use_primary(0);
    CU(cuMemAlloc(&block, 4096));
    start_thread(&thread, call_everything, NULL);
    pthread_join(thread, NULL);
    CU(cuMemAlloc(&block, 4096));
    CU(cuMemFree(block));
    printf("expect allocations=2 frees=2 live_blocks=0\n");
    return 0;
}
