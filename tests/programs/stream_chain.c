/*
 * Blocks that S1 freed with its work on them pending go to S2, which frees them at once, and on to S3. S2 may be idle when it
 * frees: that its own work is done says nothing about S1's, which must not land in S3's data. Argument: "merge", S2 takes two
 * neighbours as one block; or "equal".
 */
#include "driver.h"

#define SIZE (8 * MIB)
#define COUNT 6
#define OLD 0x31
#define BETWEEN 0x53
#define NEW 0x42

static CUstream stream[3];

/* S1's write comes late, long after the last stream's. */
static void first(bool in_order) {
    CUdeviceptr memory[COUNT];
    for (int i = 0; i < COUNT; i++)
        CU(in_order ? cuMemAllocAsync(&memory[i], SIZE, stream[0]) : cuMemAlloc(&memory[i], SIZE));
    CU(cuLaunchHostFunc(stream[0], sleep_in_stream, (void *)(intptr_t)KERNEL_MS));
    for (int i = 0; i < COUNT; i++)
        CU(cuMemsetD8Async(memory[i], OLD, SIZE, stream[0]));
    for (int i = 0; i < COUNT; i++)
        CU(in_order ? cuMemFreeAsync(memory[i], stream[0]) : cuMemFree(memory[i]));
}

static void second(int neighbours, bool works) {
    CUdeviceptr memory[COUNT];
    for (int i = 0; i < COUNT / neighbours; i++) {
        CU(cuMemAllocAsync(&memory[i], neighbours * SIZE, stream[1]));
        if (works)
            CU(cuMemsetD8Async(memory[i], BETWEEN, neighbours * SIZE, stream[1]));
    }
    for (int i = 0; i < COUNT / neighbours; i++)
        CU(cuMemFreeAsync(memory[i], stream[1]));
}

static size_t third(void) {
    CUdeviceptr memory[COUNT];
    size_t wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        CU(cuMemAllocAsync(&memory[i], SIZE, stream[2]));
        CU(cuMemsetD8Async(memory[i], NEW, SIZE, stream[2]));
    }
    for (int i = 0; i < COUNT; i++)
        wrong += wrong_on_device(memory[i], NEW, SIZE);
    for (int i = 0; i < COUNT; i++)
        CU(cuMemFreeAsync(memory[i], stream[2]));
    CU(cuCtxSynchronize());
    return wrong;
}

int main(int argc, char **argv) {
    int neighbours = argc > 1 && strcmp(argv[1], "equal") == 0 ? 1 : 2;
    use_primary(0);
    for (size_t i = 0; i < COUNT_OF(stream); i++)
        stream[i] = new_stream(CU_STREAM_NON_BLOCKING);
    for (int works = 0; works < 2; works++) {
        first(false);
        second(neighbours, works);
        printf("freed by cuMemFree, %s by the second stream: wrong bytes %zu\n", works ? "used" : "passed on", third());
        first(true);
        second(neighbours, works);
        printf("freed in stream order, %s by the second stream: wrong bytes %zu\n", works ? "used" : "passed on", third());
    }
    return 0;
}
