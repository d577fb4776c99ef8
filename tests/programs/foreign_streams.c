/*
 * Memory of one context, used and freed in the order of another context's stream: the free waits for nothing, no next owner has the block before that
 * stream gets there, and the memory comes back, also when the other context goes.
 */
#include "driver.h"

#define SIZE (8 * MIB)

static CUcontext own, other;
static CUdeviceptr source; /* of the other context */

static void become(CUcontext context) {
    CU(cuCtxSetCurrent(context));
}

static CUdeviceptr taken(void) {
    CUdeviceptr memory;
    become(own);
    CU(cuMemAlloc(&memory, SIZE));
    return memory;
}

/* Late in the other context's stream its bytes arrive in our block, and the block is freed behind that. */
static void used_and_freed(CUdeviceptr memory, CUstream stream, int ms) {
    become(other);
    CU(cuLaunchHostFunc(stream, sleep_in_stream, (void *)(intptr_t)ms));
    CU(cuMemcpyPeerAsync(memory, own, source, other, SIZE, stream));
    CU(cuMemFreeAsync(memory, stream));
}

static CUstream new_other(void) {
    CU(cuCtxCreate(&other, NULL, 0, 0));
    CU(cuMemAlloc(&source, SIZE));
    CU(cuMemsetD8(source, 0x11, SIZE));
    CU(cuCtxSynchronize());
    return new_stream(CU_STREAM_NON_BLOCKING);
}

static void returns_at_once(CUstream stream) {
    unsigned flag = 0;
    CUdeviceptr memory = taken();
    become(other);
    CU(cuLaunchHostFunc(stream, wait_for_flag, &flag));
    double start = now_ms();
    CU(cuMemFreeAsync(memory, stream));
    bool early = now_ms() < start + PATIENCE_MS;
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE); /* pairs with wait_for_flag() */
    CU(cuStreamSynchronize(stream));
    printf("the free returned before the stream's work was over: %s\n", yes_no(early));
}

/* The next owner writes in our own context, on this stream, after frees of which our context's work is soon done. */
static size_t next_owner(CUstream stream) {
    CUdeviceptr memory[3];
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        memory[i] = taken();
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        CU(cuMemFree(memory[i]));
    sleep_ms(5);
    for (size_t i = 0; i < COUNT_OF(memory); i++) {
        CU(cuMemAllocAsync(&memory[i], SIZE, stream));
        CU(cuMemsetD8Async(memory[i], 0x22, SIZE, stream));
    }
    become(other);
    CU(cuCtxSynchronize());
    become(own);
    CU(cuCtxSynchronize());
    for (size_t i = 0; i < COUNT_OF(memory); i++) /* never freed: the next time there shall be nothing else to hand out */
        wrong += wrong_on_device(memory[i], 0x22, SIZE);
    return wrong;
}

/* Nothing can watch the stream any more when the capture on this one is over. */
static void ends_in_a_capture(CUstream captured) {
    CUdeviceptr memory = taken();
    CUgraph graph;
    become(other);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    become(own);
    CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    used_and_freed(memory, stream, KERNEL_MS);
    CU(cuStreamDestroy(stream));
    become(own);
    CU(cuStreamEndCapture(captured, &graph));
    CU(cuGraphDestroy(graph));
}

int main(void) {
    own = use_primary(0);
    CUstream here = new_stream(CU_STREAM_NON_BLOCKING), there = new_other();
    returns_at_once(there);

    ends_in_a_capture(here);
    printf("next owner's data behind a foreign stream that ended in a capture: wrong %zu\n", next_owner(here));
    used_and_freed(taken(), there, KERNEL_MS);
    printf("next owner's data behind a foreign stream: wrong %zu\n", next_owner(here));
    used_and_freed(taken(), CU_STREAM_LEGACY, KERNEL_MS); /* both contexts have one of that name */
    printf("next owner's data behind a foreign default stream: wrong %zu\n", next_owner(CU_STREAM_LEGACY));

    int failed = 0;
    CUdeviceptr memory;
    for (int i = 0; i < 100; i++) {
        become(own);
        if (cuMemAlloc(&memory, SIZE) != CUDA_SUCCESS)
            failed++;
        else
            used_and_freed(memory, there, 0);
        CU(cuStreamSynchronize(there));
    }
    printf("freed 100 times: failed %d\n", failed);
    failed = 0;
    for (int i = 0; i < 60; i++) {
        CU(cuCtxDestroy(other));
        there = new_other();
        become(own);
        if (cuMemAlloc(&memory, SIZE) != CUDA_SUCCESS)
            failed++;
        else
            used_and_freed(memory, there, 1);
    }
    CU(cuCtxDestroy(other));
    printf("freed and the context gone, 60 times: failed %d\n", failed);
    become(own);
    CU(cuMemAlloc(&memory, SIZE));
    CU(cuMemFree(memory));
    return 0;
}
