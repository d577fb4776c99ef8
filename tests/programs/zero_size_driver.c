/*
 * Size zero through every allocating call of the driver: codes and pointers are the driver's own (they differ from the
 * runtime's).
 */
#include "driver.h"

#define MARK ((CUdeviceptr)0x7)

static void show(const char *call, CUresult error, CUdeviceptr memory) {
    printf("%s: %d, pointer %s", call, (int)error, !memory ? "0" : memory == MARK ? "unchanged" : "set");
    if (memory != MARK)
        printf(", free %d", (int)cuMemFree(memory));
    printf("\n");
}

int main(void) {
    CUdeviceptr memory;
    CUdevice device;
    CUmemoryPool pool;
    size_t pitch = 7;
    CUresult error;
    use_primary(0);
    CU(cuDeviceGet(&device, 0));
    CU(cuDeviceGetDefaultMemPool(&pool, device));
    for (int round = 0; round < 2; round++) {
        error = cuMemAlloc((memory = MARK, &memory), 0);
        show("cuMemAlloc", error, memory);
        error = cuMemAllocAsync((memory = MARK, &memory), 0, 0);
        show("cuMemAllocAsync", error, memory);
        error = cuMemAllocFromPoolAsync((memory = MARK, &memory), 0, pool, 0);
        show("cuMemAllocFromPoolAsync", error, memory);
        error = cuMemAllocManaged((memory = MARK, &memory), 0, CU_MEM_ATTACH_GLOBAL);
        show("cuMemAllocManaged", error, memory);
        error = cuMemAllocPitch((memory = MARK, &memory), &pitch, 0, 7, 4);
        show("cuMemAllocPitch width", error, memory);
        error = cuMemAllocPitch((memory = MARK, &memory), &pitch, 100, 0, 4);
        show("cuMemAllocPitch height", error, memory);
        error = cuMemAllocPitch((memory = MARK, &memory), &pitch, 100, 10, 3);
        show("cuMemAllocPitch element 3", error, memory);
        show("cuMemAlloc(NULL)", cuMemAlloc(NULL, 4096), MARK);
        show("cuMemAllocAsync(NULL)", cuMemAllocAsync(NULL, 4096, 0), MARK);
        printf("cuMemFree(0): %d, cuMemFreeAsync(0): %d\n", (int)cuMemFree(0), (int)cuMemFreeAsync(0, 0));
    }
    printf("expect allocations=0 frees=0 live_blocks=0\n");
    return 0;
}
