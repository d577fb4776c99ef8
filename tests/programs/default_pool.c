/*
 * The device's default memory pool, as the frameworks use it: they set its release threshold, read how much is in use and reserved, give memory
 * back. Stream-ordered memory shows there, whoever serves it. The argument says which:
 *   figures   what is in use, the most so far, and that it can be reset; the threshold is kept
 *   trim      idle memory goes back to the device
 *   busy      a trim does not wait for a kernel that waits for the host
 *   set       the default pool made the current one again: nothing changes; then one of the program's own, which serves from then on
 *   access    access given to another device (this one): its memory is the driver's then
 */
#include "driver.h"
#include <stdatomic.h>

static CUmemoryPool pool;
static CUstream stream;

static void show(const char *when) {
    unsigned long long used = pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), reserved = pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    printf("%s: in use %llu, at most %llu; as much reserved: %s, at most that: %s\n", when, used, pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
           yes_no(reserved >= used), yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= reserved));
}

static void keep_all(void) {
    cuuint64_t all = UINT64_MAX;
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

static CUdeviceptr take(size_t size) {
    CUdeviceptr block;
    CU(cuMemAllocAsync(&block, size, stream));
    return block;
}

static void figures(void) {
    cuuint64_t zero = 0, one = 1;
    CUdeviceptr device, block[3];
    show("new");
    CU(cuMemAlloc(&device, 10 * MIB));
    show("memory of another kind");
    block[0] = take(1000);
    block[1] = take(5 * MIB);
    block[2] = take(100);
    show("three blocks");
    CU(cuMemFreeAsync(block[1], stream));
    CU(cuStreamSynchronize(stream));
    show("one freed");
    printf("reset: %d %d, to something: ", (int)cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero),
           (int)cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    printf("%d, the present: %d\n", (int)cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one),
           (int)cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
    show("reset");
    CU(cuMemFreeAsync(block[0], stream)); /* what cuMemFree frees the driver goes on counting (measured) */
    CU(cuMemFreeAsync(block[2], stream));
    CU(cuStreamSynchronize(stream));
    show("all freed");
    CU(cuMemFree(device));
    keep_all();
    printf("threshold kept: %s\n", yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX));
}

static void trim(void) {
    CUdeviceptr block[4], rest;
    unsigned long long before;
    keep_all();
    rest = take(1000);
    for (size_t i = 0; i < COUNT_OF(block); i++)
        block[i] = take(64 * MIB);
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemFreeAsync(block[i], stream));
    CU(cuCtxSynchronize());
    before = pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    printf("reserved for the next ones: %s\n", yes_no(before >= 256 * MIB));
    CU(cuMemPoolTrimTo(pool, (size_t)1 << 40));
    printf("trimmed to more than there is: %s\n", yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == before));
    CU(cuMemPoolTrimTo(pool, 0));
    printf("trimmed: %s\n", yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 128 * MIB));
    show("afterwards");
    CU(cuMemsetD8Async(rest, 3, 1000, stream));
    printf("the block in use: wrong bytes %zu\n", wrong_on_device(rest, 3, 1000));
}

static _Atomic bool trimmed;

static void CUDA_CB until_trimmed(void *unused) {
    (void)unused;
    while (!atomic_load(&trimmed))
        sleep_ms(1);
}

static void busy(void) {
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block = take(64 * MIB);
    CU(cuMemFreeAsync(block, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuLaunchHostFunc(other, until_trimmed, NULL));
    CU(cuMemPoolTrimTo(pool, 0));
    atomic_store(&trimmed, true);
    CU(cuStreamSynchronize(other));
    printf("finished: yes\n");
}

static bool from(CUmemoryPool expected, CUdeviceptr block) {
    CUmemoryPool named = NULL;
    CU(cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    return named == expected;
}

static void set(void) {
    CUmemPoolProps where = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool own;
    CUdeviceptr block[3];
    CU(cuDeviceSetMemPool(0, pool));
    block[0] = take(MIB);
    CU(cuMemPoolCreate(&own, &where));
    CU(cuDeviceSetMemPool(0, own));
    block[1] = take(MIB);
    CU(cuDeviceSetMemPool(0, pool));
    block[2] = take(MIB);
    printf("from the current pool: %s %s %s\n", yes_no(from(pool, block[0])), yes_no(from(own, block[1])), yes_no(from(pool, block[2])));
    show("two of three");
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemFreeAsync(block[i], stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemPoolDestroy(own));
}

static void give_access(void) {
    CUmemAccessDesc here = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr before = take(MIB), after;
    CU(cuMemPoolSetAccess(pool, &here, 1));
    after = take(2 * MIB);
    show("before and after");
    printf("from the pool: %s %s\n", yes_no(from(pool, before)), yes_no(from(pool, after)));
    CU(cuMemFreeAsync(before, stream));
    CU(cuMemFreeAsync(after, stream));
    CU(cuStreamSynchronize(stream));
    show("freed");
}

/* To trim keeps at least as much as it is told. */
static void keep_some(void) {
    CUdeviceptr blocks[8];
    keep_all();
    for (int i = 0; i < 8; i++)
        blocks[i] = take(20 * MIB);
    for (int i = 0; i < 8; i++)
        CU(cuMemFreeAsync(blocks[i], stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemPoolTrimTo(pool, 100 * MIB));
    printf("as much as said is kept: %s\n", yes_no(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 100 * MIB));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    use_primary(0);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuDeviceGetDefaultMemPool(&pool, 0));
    if (strcmp(what, "figures") == 0)
        figures();
    else if (strcmp(what, "trim") == 0)
        trim();
    else if (strcmp(what, "some") == 0)
        keep_some();
    else if (strcmp(what, "busy") == 0)
        busy();
    else if (strcmp(what, "set") == 0)
        set();
    else if (strcmp(what, "access") == 0)
        give_access();
    else
        die("what?");
    return 0;
}
