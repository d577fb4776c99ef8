/*
 * A thread frees behind a kernel that runs until the main thread goes on; that one first retains and releases the primary context,
 * as many a library does. Whoever lets the release wait for the free hangs here.
 */
#include "driver.h"
#include <stdatomic.h>

static CUcontext context;
static CUdeviceptr flag;
static _Atomic int freeing;

static void *freer(void *arg) {
    CUdeviceptr memory;
    CU(cuCtxSetCurrent(context));
    CU(cuMemAlloc(&memory, 100 * MIB)); /* large enough for any allocator to want to wait */
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    CU(cuMemsetD8Async(memory, 1, 4096, stream));
    freeing = 1;
    CU(cuMemFree(memory));
    return arg;
}

int main(void) {
    CUcontext same;
    CUdevice device;
    void *host;
    pthread_t thread;
    context = use_primary(0);
    CU(cuDeviceGet(&device, 0));
    CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&flag, host, 0));
    atomic_store((_Atomic unsigned *)host, 0);
    start_thread(&thread, freer, NULL);
    while (!freeing)
        sleep_ms(1);
    sleep_ms(100);
    alarm(20);
    CU(cuDevicePrimaryCtxRetain(&same, device));
    CU(cuDevicePrimaryCtxRelease(device));
    printf("released\n");
    fflush(stdout);
    atomic_store((_Atomic unsigned *)host, 1);
    pthread_join(thread, NULL);
    return 0;
}
