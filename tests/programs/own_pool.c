/*
 * The program makes a memory pool of its own the device's current one, by the call that the argument names; stream-ordered memory must come from there.
 */
#include "driver.h"

int main(int argc, char **argv) {
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemoryPool pool;
    CUdeviceptr block;
    cuuint64_t used = 0;
    use_primary(0);
    CU(cuMemPoolCreate(&pool, &properties));
    if (argc > 1 && strcmp(argv[1], "location") == 0)
        CU(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    else
        CU(cuDeviceSetMemPool(0, pool));
    CU(cuMemAllocAsync(&block, MIB, CU_STREAM_LEGACY));
    CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("in the program's pool: %llu bytes\n", (unsigned long long)used);
    CU(cuMemFreeAsync(block, CU_STREAM_LEGACY));
    CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    return 0;
}
