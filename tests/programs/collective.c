/*
 * Collectives over two devices, as NCCL launches them: on each device a kernel that ends once the other's has begun. The thread
 * that launches them allocates and frees between the two launches, and another does so all the time, on both devices. On the bare
 * driver such a free waits for a kernel whose partner is never launched, so this is only for caches. Asks for the driver's
 * version before and after, so that a log shows what was called in between. Needs two devices (SIMCUDA_DEVICES=2). Argument: how
 * many collectives.
 */
#include "driver.h"

#define BLOCKS 8
#define SMALL (4 * KIB)

static CUcontext context[2];
static CUstream stream[2];
static unsigned *begun; /* pinned: by device, the last collective that began there */
static bool stop;

static void mark(void) {
    int version;
    CU(cuDriverGetVersion(&version));
}

static void pairs(int device, size_t size) {
    CUdeviceptr block[BLOCKS];

    CU(cuCtxSetCurrent(context[device]));
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemAlloc(&block[i], size));
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemFree(block[i]));
}

static void *churn(void *unused) {
    (void)unused;
    for (int i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        pairs(i % 2, SMALL);
        usleep(200);
    }
    return NULL;
}

static void launch(int device, unsigned number) {
    CU(cuCtxSetCurrent(context[device]));
    CU(cuStreamWriteValue32(stream[device], (CUdeviceptr)&begun[device], number, CU_STREAM_WRITE_VALUE_DEFAULT));
    CU(cuStreamWaitValue32(stream[device], (CUdeviceptr)&begun[1 - device], number, CU_STREAM_WAIT_VALUE_GEQ));
}

static bool ends(int device) {
    double end = now_ms() + PATIENCE_MS;

    CU(cuCtxSetCurrent(context[device]));
    while (cuStreamQuery(stream[device]) == CUDA_ERROR_NOT_READY)
        if (now_ms() > end)
            return false;
    return true;
}

int main(int argc, char **argv) {
    int collectives = argc > 1 ? atoi(argv[1]) : 100, done = 0, count = 0;
    pthread_t thread;

    CU(cuInit(0));
    CU(cuDeviceGetCount(&count));
    if (count < 2)
        skip("needs two devices");
    for (int i = 0; i < 2; i++) {
        context[i] = use_primary(i);
        stream[i] = new_stream(CU_STREAM_NON_BLOCKING);
    }
    CU(cuMemHostAlloc((void **)&begun, 2 * sizeof *begun, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    begun[0] = begun[1] = 0;
    for (int i = 0; i < 20; i++) { /* until all of it is hits */
        pairs(i % 2, MIB);
        pairs(i % 2, SMALL);
        CU(cuCtxSynchronize());
    }
    mark();
    start_thread(&thread, churn, NULL);
    for (unsigned i = 1; i <= (unsigned)collectives; i++) {
        launch(i % 2, i);
        pairs(i % 2, MIB);
        launch(1 - i % 2, i);
        if (!ends(0) || !ends(1))
            die("collective %u hangs", i);
        done++;
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    mark();
    printf("collectives done: %d\n", done);
    return 0;
}
