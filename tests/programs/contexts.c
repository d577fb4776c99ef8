/*
 * Two contexts on one device, their blocks freed with work pending and with the other context current; then one is destroyed with
 * live and with freed blocks of its own. Memory must go back to the context it came from, and die with it.
 */
#include "driver.h"

#define OLD 0x11
#define NEW 0x22
#define SIZE (256 * KIB)

static CUcontext make_context(CUdevice device) {
    CUcontext context;
    CU(cuCtxCreate(&context, NULL, 0, device));
    return context;
}

/* Freed while the other context is current, as a garbage collector's thread would. */
static bool keeps_data(CUcontext owner, CUcontext current) {
    CUdeviceptr old, new;
    CU(cuCtxSetCurrent(owner));
    CUstream s1 = new_stream(CU_STREAM_NON_BLOCKING), s2 = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&old, SIZE));
    slow_fill(old, OLD, SIZE, s1, KERNEL_MS);
    CU(cuCtxSetCurrent(current));
    CU(cuMemFree(old));
    CU(cuCtxSetCurrent(owner));
    CU(cuMemAlloc(&new, SIZE));
    CU(cuMemsetD8Async(new, NEW, SIZE, s2));
    bool kept = wrong_on_device(new, NEW, SIZE) == 0;
    CU(cuMemFree(new));
    CU(cuStreamDestroy(s1));
    CU(cuStreamDestroy(s2));
    return kept;
}

/* The new owner of the memory is written from another context, by a peer copy: what orders only the owner's own work does not
 * order that. So many large blocks that some come back behind a running kernel. */
static bool keeps_copy(CUcontext owner, CUcontext writer) {
    enum { BLOCKS = 8 };
    CUdeviceptr old[BLOCKS], new[BLOCKS], source;
    const size_t large = 20 * MIB;
    bool kept = true;
    CU(cuCtxSetCurrent(writer));
    CUstream copies = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&source, SIZE));
    CU(cuMemsetD8(source, NEW, SIZE));
    CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(owner));
    CUstream kernels = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++)
            CU(cuMemAlloc(&old[i], large));
        for (int i = 0; i < BLOCKS; i++)
            slow_fill(old[i], OLD, SIZE, kernels, KERNEL_MS / 4);
        for (int i = 0; i < BLOCKS; i++)
            CU(cuMemFree(old[i]));
        for (int i = 0; i < BLOCKS; i++) {
            CU(cuMemAlloc(&new[i], large));
            CU(cuMemcpyPeerAsync(new[i], owner, source, writer, SIZE, copies));
        }
        CU(cuStreamSynchronize(copies));
        for (int i = 0; i < BLOCKS; i++)
            kept &= wrong_on_device(new[i], NEW, SIZE) == 0;
        for (int i = 0; i < BLOCKS; i++)
            CU(cuMemFree(new[i]));
    }
    CU(cuStreamDestroy(kernels));
    CU(cuStreamDestroy(copies));
    CU(cuMemFree(source));
    return kept;
}

/* Whether fresh memory belongs to the context that is current. */
static bool belongs(CUcontext context) {
    CUdeviceptr memory;
    CUcontext owner = NULL;
    CU(cuCtxSetCurrent(context));
    CU(cuMemAlloc(&memory, SIZE));
    CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    CU(cuMemFree(memory));
    return owner == context;
}

int main(void) {
    CUdevice device;
    CUcontext primary = use_primary(0);
    CU(cuDeviceGet(&device, 0));
    CUcontext second = make_context(device), third = make_context(device);
    printf("own context current: %s\n", yes_no(keeps_data(second, second)));
    printf("primary current: %s\n", yes_no(keeps_data(second, primary)));
    printf("other context current: %s\n", yes_no(keeps_data(third, second)));
    printf("primary's block, other current: %s\n", yes_no(keeps_data(primary, third)));
    printf("written from another context: %s\n", yes_no(keeps_copy(second, third)));
    printf("primary's, written from another context: %s\n", yes_no(keeps_copy(primary, third)));
    for (int i = 0; i < 3; i++)
        printf("fresh memory of the current context: %s %s %s\n", yes_no(belongs(primary)), yes_no(belongs(second)),
               yes_no(belongs(third)));

    CUdeviceptr lost, kept, again;
    CU(cuCtxSetCurrent(second));
    CU(cuMemAlloc(&lost, SIZE));
    CU(cuCtxSetCurrent(third));
    CU(cuMemAlloc(&kept, SIZE));
    CU(cuCtxDestroy(second));
    printf("free after its context went: %d\n", (int)cuMemFree(lost));
    for (int i = 0; i < 3; i++) {
        CUcontext born = make_context(device);
        CU(cuMemAlloc(&again, SIZE));
        CU(cuMemsetD8(again, NEW, SIZE));
        printf("memory of a context born later: wrong bytes %zu\n", wrong_on_device(again, NEW, SIZE));
        CU(cuCtxDestroy(born));
    }
    CU(cuCtxSetCurrent(third));
    printf("free in the surviving context: %d\n", (int)cuMemFree(kept));
    CU(cuCtxDestroy(third));
    return 0;
}
