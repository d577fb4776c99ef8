/*
 * A kernel that waits for a later one on another stream, with an allocation between the two launches.
 *
 * It runs on the bare driver, since cudaMalloc waits for nothing and orders nothing. It hangs if an allocation makes the second
 * stream wait for work that was submitted after the free. Arguments: wait-value (the waiting kernel is a queued wait) or
 * host-function; KiB of a block (4096); ms between the launch of that kernel and the allocations, in which the freed blocks' own work ends (0); blocks freed by cuMemFreeAsync on other
 * streams between the two (0), which wait for those streams alone.
 */
#include "driver.h"

#define STREAMS 20

static unsigned *flag; /* pinned, so its host address is its device address too */

static void CUDA_CB set(void *unused) {
    (void)unused;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void launch_waiter(CUstream stream, bool host_function) {
    if (host_function)
        CU(cuLaunchHostFunc(stream, wait_for_flag, flag));
    else
        CU(cuStreamWaitValue32(stream, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void launch_setter(CUstream stream, bool host_function) {
    if (host_function)
        CU(cuLaunchHostFunc(stream, set, NULL));
    else
        CU(cuStreamWriteValue32(stream, (CUdeviceptr)flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
}

static bool finishes(CUstream stream) {
    double end = now_ms() + PATIENCE_MS;
    while (now_ms() < end) {
        CUresult state = cuStreamQuery(stream);
        if (state == CUDA_SUCCESS)
            return true;
        if (state != CUDA_ERROR_NOT_READY)
            CU(state);
        sleep_ms(1);
    }
    return false;
}

int main(int argc, char **argv) {
    bool host_function = argc > 1 && strcmp(argv[1], "host-function") == 0;
    size_t size = (argc > 2 ? (size_t)atoi(argv[2]) : 4096) * KIB;
    CUdeviceptr freed[4], block[4];
    use_primary(0);
    CU(cuMemHostAlloc((void **)&flag, sizeof *flag, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    *flag = 0;
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING), waiter = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream setter = new_stream(CU_STREAM_NON_BLOCKING);

    for (size_t i = 0; i < COUNT_OF(freed); i++) {
        CU(cuMemAlloc(&freed[i], size));
        slow_fill(freed[i], 1, size, busy, KERNEL_MS / 4);
    }
    size_t ordered = argc > 4 ? (size_t)atoi(argv[4]) : 0;
    CUdeviceptr small[STREAMS * 10];
    CUstream streams[STREAMS];
    for (size_t i = 0; i < STREAMS && ordered; i++)
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < ordered && i < COUNT_OF(small); i++)
        CU(cuMemAllocAsync(&small[i], KIB, streams[i % STREAMS]));
    for (size_t i = 0; i < COUNT_OF(freed); i++)
        CU(cuMemFree(freed[i]));
    launch_waiter(waiter, host_function);
    for (size_t i = 0; i < ordered && i < COUNT_OF(small); i++)
        CU(cuMemFreeAsync(small[i], streams[i % STREAMS]));
    sleep_ms(argc > 3 ? atoi(argv[3]) : 0);
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemAlloc(&block[i], size));
    launch_setter(setter, host_function);

    bool finished = finishes(waiter);
    /* Let a faulty order go, so that the machine is not left with a kernel that never ends. */
    set(NULL);
    CU(cuCtxSynchronize());
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemFree(block[i]));
    printf("finished: %s\n", yes_no(finished));
    return 0;
}
