/*
 * Memory is nearly out, and what the next allocation needs was freed: natively it is there at once. In between, a kernel is launched
 * that waits for a later launch, so an allocation that waits for it never returns (here: until the kernel gives up).
 *
 *     memory_short records     200 small frees on other streams come after that kernel; what they record covers it
 *     memory_short stream      the same with one free on the kernel's own stream
 *     memory_short context     the memory was freed in another context of the device (no kernel)
 *     memory_short pieces      the same, with a small block freed last in each part of it
 *     memory_short trimmed     one trim gives all of that back
 */
#include "driver.h"

#define CUPLUG_API __attribute__((weak))
#include "shim/cuplug.h"

#define STREAMS 20
#define SMALL 200
#define SIZE (20 * MIB)
#define PIECES 11

static unsigned flag;

static void beside_a_kernel(bool own_stream) {
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING), waiter = new_stream(CU_STREAM_NON_BLOCKING), streams[STREAMS];
    CUdeviceptr small[SMALL], large, own, next = 0;

    for (int i = 0; i < STREAMS; i++)
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < SMALL; i++)
        CU(cuMemAllocAsync(&small[i], KIB, streams[i % STREAMS]));
    if (own_stream)
        CU(cuMemAllocAsync(&own, 16 * MIB, waiter));
    CU(cuMemAlloc(&large, SIZE));
    slow_fill(large, 1, SIZE, busy, 100);
    CU(cuMemFree(large));
    CU(cuLaunchHostFunc(waiter, wait_for_flag, &flag));
    if (own_stream)
        CU(cuMemFreeAsync(own, waiter));
    for (int i = 0; i < SMALL && !own_stream; i++)
        CU(cuMemFreeAsync(small[i], streams[i % STREAMS]));
    printf("allocation: %d\n", (int)cuMemAlloc(&next, SIZE));
    printf("waited for the kernel: %s\n", yes_no(cuStreamQuery(waiter) == CUDA_SUCCESS));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    CU(cuCtxSynchronize());
}

static void other_context(void) {
    CUcontext context;
    CUdevice device;
    CUdeviceptr first, large, next;

    CU(cuMemAlloc(&first, 4 * KIB));
    CU(cuMemAlloc(&large, 3 * SIZE));
    CU(cuMemFree(large));
    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&context, NULL, 0, device));
    printf("allocation: %d\n", (int)cuMemAlloc(&next, 3 * SIZE));
}

/* Frees all it takes. Those of the small ones are too few to be recorded. */
static void freed_in_pieces(CUcontext context) {
    CUdeviceptr large[PIECES], small[PIECES], whole;

    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < PIECES; i++) {
        CU(cuMemAlloc(&large[i], 63 * MIB + 512 * KIB));
        CU(cuMemAlloc(&small[i], 512 * KIB));
    }
    CU(cuMemAlloc(&whole, 64 * MIB));
    for (int i = 0; i < PIECES; i++)
        CU(cuMemFree(large[i]));
    CU(cuMemFree(whole)); /* this part is there for the asking */
    for (int i = 0; i < PIECES; i++)
        CU(cuMemFree(small[i]));
    CU(cuCtxSynchronize());
}

static void pieces(CUcontext own) {
    CUcontext context;
    CUdevice device;
    CUdeviceptr next = 0;

    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&context, NULL, 0, device));
    freed_in_pieces(context);
    CU(cuCtxSetCurrent(own));
    printf("allocation: %d\n", (int)cuMemAlloc(&next, PIECES * 54 * MIB));
}

static void trimmed(CUcontext own) {
    long long left = 0;

    freed_in_pieces(own);
    if (cuplug_trim && (cuplug_trim(0) < 0 || cuplug_get_stat("reserved_bytes", 0, &left) != 0))
        die("no answer");
    printf("left: %lld\n", left);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUcontext own = use_primary(0);

    if (strcmp(what, "context") == 0)
        other_context();
    else if (strcmp(what, "pieces") == 0)
        pieces(own);
    else if (strcmp(what, "trimmed") == 0)
        trimmed(own);
    else
        beside_a_kernel(strcmp(what, "stream") == 0);
    return 0;
}
