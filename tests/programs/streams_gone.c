/*
 * A thousand streams that each allocate, work and free, and are destroyed with that pending; then one large allocation on stream
 * 0, of all the bytes there are.
 */
#include "driver.h"

#define STREAMS 1000
#define PIECE (32 * KIB)
#define LARGE (36 * MIB) /* more than all pieces, so that they can come from one such block */

static void all_at_once(void) {
    static struct {
        CUstream stream;
        CUdeviceptr memory;
    } owner[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        owner[i].stream = new_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        CU(cuMemAllocAsync(&owner[i].memory, PIECE, owner[i].stream));
    }
    for (int i = 0; i < STREAMS; i++) {
        if (i % 16 == 0)
            CU(cuLaunchHostFunc(owner[i].stream, sleep_in_stream, (void *)(intptr_t)5));
        CU(cuMemsetD8Async(owner[i].memory, 0x31, PIECE, owner[i].stream));
        CU(cuMemFreeAsync(owner[i].memory, owner[i].stream));
        CU(cuStreamDestroy(owner[i].stream));
    }
    CU(cuCtxSynchronize());
}

static CUdeviceptr large_block(void) {
    CUdeviceptr memory;
    CU(cuMemAllocAsync(&memory, LARGE, NULL));
    CU(cuMemsetD8Async(memory, 0x42, LARGE, NULL));
    return memory;
}

static void reuse(void) {
    CU(cuMemFreeAsync(large_block(), NULL));
    CU(cuCtxSynchronize());
    all_at_once();
    CUdeviceptr memory = large_block();
    printf("one block of all the bytes: wrong %zu\n", wrong_on_device(memory, 0x42, LARGE));
    CU(cuMemFreeAsync(memory, NULL));
    CU(cuCtxSynchronize());
}

int main(void) {
    use_primary(0);
    reuse();
    return 0;
}
