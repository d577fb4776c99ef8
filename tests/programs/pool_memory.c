/*
 * Memory that comes from a pool of the driver's although the program asked for none: usable at once, bounded, given back, gone with its context, and
 * reached by the other device; or from pages that can be moved. Argument: at_once, ahead, kept, lives, peers, pages or busy_pages.
 */
#include "driver.h"

enum { OLD = 0x11, NEW = 0x22 };
static const size_t SIZE = 64 * MIB;

static unsigned flag;
static CUcontext context;
static CUdeviceptr block;

/* Another thread's stream, which nothing orders behind the allocation. */
static void *use(void *used) {
    CU(cuCtxSetCurrent(context));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemsetD8Async(block, NEW, SIZE, stream));
    CU(cuStreamSynchronize(stream));
    *(bool *)used = __atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0;
    return NULL;
}

/* Freed behind a kernel that runs until the next owner has written. */
static void at_once(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    pthread_t thread;
    CUdeviceptr old;
    bool used = false;
    context = use_primary(0);
    CU(cuMemAlloc(&old, SIZE));
    CU(cuLaunchHostFunc(stream, wait_for_flag, &flag));
    CU(cuMemsetD8Async(old, OLD, SIZE, stream));
    CU(cuMemFree(old));
    CU(cuMemAlloc(&block, SIZE));
    start_thread(&thread, use, &used);
    pthread_join(thread, NULL);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    printf("used while the old kernel runs: %s, wrong bytes %zu\n", yes_no(used), wrong_on_device(block, NEW, SIZE));
}

/* The host runs ahead of the device. */
static void ahead(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 60; i++) {
        CU(cuMemAlloc(&block, SIZE / 2));
        slow_fill(block, OLD, KIB, stream, 4);
        CU(cuMemFree(block));
    }
    CU(cuCtxSynchronize());
}

static size_t taken(void) {
    size_t free, total;
    CU(cuMemGetInfo(&free, &total));
    return total - free;
}

static void kept(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr other;
    CU(cuMemAlloc(&block, SIZE));
    CU(cuMemAllocAsync(&other, SIZE, stream));
    CU(cuMemFree(block));
    CU(cuMemFreeAsync(other, stream));
    CU(cuCtxSynchronize());
    CU(cuMemAlloc(&block, KIB)); /* what was freed is asked about now */
    CU(cuCtxSynchronize());
    printf("idle memory stays after a synchronisation: %s\n", yes_no(taken() >= 2 * SIZE));
}

/* Three blocks of a context that ends: live, freed, freed with work pending. */
static void live_once(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory[3];
    for (int i = 0; i < 3; i++)
        CU(cuMemAlloc(&memory[i], SIZE));
    CU(cuMemFree(memory[1]));
    slow_fill(memory[2], OLD, SIZE, stream, 5);
    CU(cuMemFree(memory[2]));
}

/* On a device that has memory for one such context, and not for two. */
static void lives(void) {
    for (int i = 0; i < 4; i++) {
        CUcontext own;
        CU(cuCtxCreate(&own, NULL, 0, 0));
        live_once();
        CU(cuCtxDestroy(own));
    }
    for (int i = 0; i < 4; i++) {
        use_primary(0);
        live_once();
        CU(cuDevicePrimaryCtxReset(0));
    }
    printf("lived eight times\n");
}

static void reach(CUcontext from, CUcontext to) {
    CU(cuCtxSetCurrent(from));
    CU(cuCtxEnablePeerAccess(to, 0));
}

/* The first device's memory is there before the other has access, the other's only afterwards. */
static void peers(void) {
    CUcontext primary[2] = {use_primary(0), use_primary(1)};
    CU(cuCtxSetCurrent(primary[0]));
    CU(cuMemAlloc(&block, KIB));
    reach(primary[1], primary[0]);
    reach(primary[0], primary[1]);
    CU(cuCtxSetCurrent(primary[1]));
    CU(cuMemAlloc(&block, KIB));
}

/* Two of four blocks are freed, which are no neighbours; then as much as both is needed in one piece. `ms`: how long the device still works on them. */
static void in_one_piece(int ms) {
    enum { BLOCKS = 4 };
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr blocks[BLOCKS], both;
    size_t wrong = 0;
    for (int i = 0; i < BLOCKS; i++) {
        CU(cuMemAlloc(&blocks[i], SIZE / 2));
        CU(cuMemsetD8Async(blocks[i], (unsigned char)(OLD + i), SIZE / 2, stream));
    }
    CU(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i += 2) {
        if (ms)
            slow_fill(blocks[i], 0xee, SIZE / 2, stream, ms);
        CU(cuMemFree(blocks[i]));
    }
    CU(cuMemAlloc(&both, SIZE));
    CU(cuMemsetD8Async(both, NEW, SIZE, stream));
    wrong += wrong_on_device(both, NEW, SIZE);
    for (int i = 1; i < BLOCKS; i += 2)
        wrong += wrong_on_device(blocks[i], OLD + i, SIZE / 2);
    CU(cuMemFree(both));
    CU(cuMemAlloc(&block, SIZE / 2)); /* where a moved one was, perhaps */
    CU(cuMemsetD8(block, NEW, SIZE / 2));
    wrong += wrong_on_device(block, NEW, SIZE / 2);
    printf("wrong bytes %zu\n", wrong);
}

static void pages(void) {
    in_one_piece(0);
}

static void busy_pages(void) {
    in_one_piece(KERNEL_MS);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*body)(void);
    } parts[] = {{"at_once", at_once}, {"ahead", ahead}, {"kept", kept}, {"lives", lives}, {"peers", peers},
                 {"pages", pages}, {"busy_pages", busy_pages}};
    use_primary(0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (argc == 2 && strcmp(argv[1], parts[i].name) == 0)
            return parts[i].body(), 0;
    die("usage: pool_memory at_once|ahead|kept|lives|peers|pages|busy_pages");
}
