/*
 * Contexts that come and go while memory is on its way: a second one born behind a device wait, one kept alive by a reference, a
 * primary one released and retained again, and many destroyed while other threads allocate, free and run out of memory.
 */
#include "driver.h"
#include <sched.h>
#include <stdatomic.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuCtxAttach, cuCtxDetach */

#define OLD 0x11
#define NEW 0x22
#define SIZE (256 * KIB)
#define LARGE (20 * MIB)
#define BLOCKS 8
#define ROUNDS 60

static CUdevice device;

static CUcontext make_context(void) {
    CUcontext context;
    CU(cuCtxCreate(&context, NULL, 0, device));
    return context;
}

/* Large blocks come back while their old kernels run; then a context is made and writes them by peer copies. */
static bool newcomer_keeps_data(CUcontext primary) {
    CUdeviceptr old[BLOCKS], new[BLOCKS], source;
    CUstream kernels = new_stream(CU_STREAM_NON_BLOCKING);
    bool kept = true;
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemAlloc(&old[i], LARGE));
    for (int i = 0; i < BLOCKS; i++)
        slow_fill(old[i], OLD, SIZE, kernels, KERNEL_MS);
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemFree(old[i]));
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemAlloc(&new[i], LARGE));
    CUcontext second = make_context();
    CUstream copies = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&source, SIZE));
    CU(cuMemsetD8(source, NEW, SIZE));
    CU(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemcpyPeerAsync(new[i], primary, source, second, SIZE, copies));
    CU(cuStreamSynchronize(copies));
    CU(cuCtxSetCurrent(primary));
    CU(cuStreamSynchronize(kernels));
    for (int i = 0; i < BLOCKS; i++) {
        kept &= wrong_on_device(new[i], NEW, SIZE) == 0;
        CU(cuMemFree(new[i]));
    }
    CU(cuStreamDestroy(kernels));
    CU(cuCtxDestroy(second));
    CU(cuCtxSetCurrent(primary));
    return kept;
}

/* A reference more and a reference less: the context and its memory stay. */
static void referenced(void) {
    CUcontext context = make_context(), same;
    CUdeviceptr first, memory, more;
    CU(cuMemAlloc(&first, SIZE));
    CU(cuMemAlloc(&memory, SIZE)); /* in the middle of what a pool took from the driver */
    CU(cuMemsetD8(memory, OLD, SIZE));
    CU(cuCtxAttach(&same, 0));
    CU(cuCtxDetach(same));
    printf("after attach and detach: wrong bytes %zu\n", wrong_on_device(memory, OLD, SIZE));
    CU(cuMemAlloc(&more, SIZE));
    CU(cuMemsetD8(more, NEW, SIZE));
    printf("both: wrong bytes %zu %zu\n", wrong_on_device(memory, OLD, SIZE), wrong_on_device(more, NEW, SIZE));
    printf("frees: %d %d %d\n", (int)cuMemFree(memory), (int)cuMemFree(more), (int)cuMemFree(first));
    CU(cuCtxDetach(context));
}

static _Atomic bool done;
static _Atomic size_t wrong, refused;

/* Makes contexts, leaves memory in every state in them, and destroys them. */
static void *come_and_go(void *arg) {
    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        CUcontext context = make_context();
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr memory[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            while (cuMemAlloc(&memory[i], 4 * MIB) == CUDA_ERROR_OUT_OF_MEMORY)
                sched_yield();
        CU(cuMemsetD8Async(memory[0], NEW, SIZE, stream));
        CU(cuMemFreeAsync(memory[1], stream));
        for (int i = 2; i < BLOCKS; i++)
            CU(cuMemFree(memory[i]));
        wrong += wrong_on_device(memory[0], NEW, SIZE);
        CU(cuCtxDestroy(context));
    }
    done = true;
    return NULL;
}

/* In the primary context, with more memory than there is: running out looks into every context of the device. */
static void *run_out(void *primary) {
    uint32_t state = 5;
    CUdeviceptr held[4] = {0};
    CU(cuCtxSetCurrent(primary));
    while (!done) {
        unsigned i = next_random(&state) % COUNT_OF(held);
        if (held[i]) {
            wrong += wrong_on_device(held[i], (int)i, 64);
            CU(cuMemFree(held[i]));
            held[i] = 0;
        }
        CUresult result = cuMemAlloc(&held[i], (100 + next_random(&state) % 120) * MIB);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            refused++;
        else if (result != CUDA_SUCCESS)
            die("an allocation beside contexts that end: error %d", (int)result);
        else
            CU(cuMemsetD8(held[i], (unsigned char)i, 64));
    }
    for (unsigned i = 0; i < COUNT_OF(held); i++)
        if (held[i])
            CU(cuMemFree(held[i]));
    return NULL;
}

/* Retains and releases the primary context while the others use it: it never goes. */
static void *retain_and_release(void *primary) {
    while (!done) {
        CUcontext same;
        CU(cuDevicePrimaryCtxRetain(&same, device));
        wrong += same != primary;
        CU(cuDevicePrimaryCtxRelease(device));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    CUcontext primary = use_primary(0);
    CU(cuDeviceGet(&device, 0));
    printf("written by a context born later: %s\n", yes_no(newcomer_keeps_data(primary)));
    referenced();
    CU(cuCtxSetCurrent(primary));
    start_thread(&threads[0], come_and_go, NULL);
    start_thread(&threads[1], run_out, primary);
    start_thread(&threads[2], run_out, primary);
    start_thread(&threads[3], retain_and_release, primary);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("contexts that came and went: wrong %zu\n", wrong);
    return 0;
}
