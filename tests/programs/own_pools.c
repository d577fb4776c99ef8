/*
 * The program's own memory pools: what it takes from them is theirs, what their attributes say is true, and memory freed in
 * stream order comes back after the stream's work. Made current for the device (argument: by "cuDeviceSetMemPool", or by
 * "cuMemSetMemPool" where the driver has it), such a pool serves cuMemAllocAsync, too.
 */
#include "driver.h"

#define SIZE MIB
#define OLD 0x11
#define NEW 0x22

#pragma weak cuMemSetMemPool /* since driver 13.0 */

static CUmemoryPool pool;
static CUstream stream;

static void show_pool(const char *when) {
    unsigned long long used = pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    printf("%s: used %llu, most %llu, as much reserved: %s\n", when, used, pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
           yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used));
}

static bool from_pool(CUdeviceptr block) {
    CUmemoryPool named = NULL;
    CU(cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    return named == pool;
}

/* Freed under a running kernel; the next owner, on another stream, keeps its data. */
static void free_in_order(CUdeviceptr block) {
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr next;
    slow_fill(block, OLD, SIZE, stream, KERNEL_MS);
    CU(cuMemFreeAsync(block, stream));
    CU(cuMemAllocFromPoolAsync(&next, SIZE, pool, other));
    CU(cuMemsetD8Async(next, NEW, SIZE, other));
    CU(cuStreamSynchronize(stream));
    printf("next owner: wrong bytes %zu, from the pool: %s\n", wrong_on_device(next, NEW, SIZE), yes_no(from_pool(next)));
    CU(cuMemFreeAsync(next, other));
    CU(cuStreamSynchronize(other));
    CU(cuStreamDestroy(other));
}

static void make_current(const char *how) {
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    if (strcmp(how, "cuDeviceSetMemPool") == 0)
        CU(cuDeviceSetMemPool(0, pool));
    else if (cuMemSetMemPool)
        CU(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    else
        skip("the driver has no cuMemSetMemPool");
}

int main(int argc, char **argv) {
    CUmemPoolProps where = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr block;
    use_primary(0);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemPoolCreate(&pool, &where));
    show_pool("new");
    CU(cuMemAllocFromPoolAsync(&block, SIZE, pool, stream));
    printf("allocated from the pool: %s\n", yes_no(from_pool(block)));
    show_pool("allocated");
    free_in_order(block);
    show_pool("freed");
    make_current(argc > 1 ? argv[1] : "");
    CU(cuMemAllocAsync(&block, SIZE, stream));
    printf("allocated from the current pool: %s\n", yes_no(from_pool(block)));
    show_pool("allocated");
    free_in_order(block);
    show_pool("freed");
    CU(cuMemPoolDestroy(pool));
    printf("expect allocations=4 frees=4 live_blocks=0 live_bytes=0 failed=0\n");
    return 0;
}
