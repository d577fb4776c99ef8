/*
 * Moments at which an allocator library must not be called, or not in that way. argv[1] says which, argv[2] is the library (see
 * tests/plugins/inside.c).
 */
#include "driver.h"

#include <dlfcn.h>
#include <stdatomic.h>

static CUcontext context;

/* --- A kernel whose partner is launched later, as natively it may be */

static _Atomic int partner, came;

static void CUDA_CB wait_for_partner(void *unused) {
    (void)unused;
    for (double end = now_ms() + 10000; !partner && now_ms() < end;)
        sleep_ms(1);
    came = partner;
}

static void CUDA_CB be_partner(void *unused) {
    (void)unused;
    partner = 1;
}

static void launch_partner(CUstream stream) {
    CU(cuLaunchHostFunc(stream, be_partner, NULL));
    CU(cuCtxSynchronize());
    printf("the partner came in time: %s\n", came ? "yes" : "no");
}

/* --- Not before it is open */

static void query_and_end_stream(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemorytype type;
    size_t left, total;

    CU(cuMemGetInfo(&left, &total));
    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x123456);
    CU(cuStreamDestroy(stream));
    printf("free of no allocation: %d\n", (int)cuMemFree(0x1234));
}

/* The library's open fails. */
static void refused(void) {
    CUdeviceptr pointer;

    CU(cuMemAlloc(&pointer, MIB));
    query_and_end_stream();
    CU(cuDevicePrimaryCtxReset(0));
}

static void *library_symbol(const char *library, const char *name) {
    static void *handle;

    while (!handle && !(handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD)))
        sleep_ms(1);
    return dlsym(handle, name);
}

static void *first_allocation(void *unused) {
    CUdeviceptr pointer;

    CU(cuCtxSetCurrent(context));
    CU(cuMemAlloc(&pointer, KIB));
    return unused;
}

/* Another thread's allocation is opening it. */
static void early(const char *library) {
    pthread_t thread;

    start_thread(&thread, first_allocation, NULL);
    while (!*(_Atomic int *)library_symbol(library, "opening"))
        sleep_ms(1);
    query_and_end_stream();
    printf("calls before open had returned: %d\n", *(_Atomic int *)library_symbol(library, "early"));
    *(_Atomic int *)library_symbol(library, "open_may_return") = 1;
    pthread_join(thread, NULL);
}

/* --- Not beside a capture */

static void trim(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    CUgraph graph;

    CU(cuMemAlloc(&pointer, 60 * MIB));
    CU(cuMemFree(pointer));
    CU(cuCtxSynchronize());
    for (int i = 0; i < 70; i++) { /* by now the library has it back, and keeps it */
        CU(cuMemAlloc(&pointer, KIB));
        CU(cuMemFree(pointer));
    }
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cuMemCreate(&handle, 60 * MIB, &prop, 0); /* fails, as the library cannot be asked to let go */
    printf("the capture ends: %d\n", (int)cuStreamEndCapture(stream, &graph));
}

/* --- Not while a kernel in another thread's default stream writes */

enum { BLOCKS = 6 };
static _Atomic int full;

static void *frees_in_its_stream(void *unused) {
    CUdeviceptr block[BLOCKS], rest;

    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < BLOCKS; i++)
        CU(cuMemAllocAsync(&block[i], (i ? 8 : 4) * MIB, CU_STREAM_PER_THREAD));
    while (cuMemAlloc(&rest, 2 * MIB) == CUDA_SUCCESS)
        ;
    slow_fill(block[0], 0xAA, 4 * MIB, CU_STREAM_PER_THREAD, 200);
    CU(cuMemFreeAsync(block[0], CU_STREAM_PER_THREAD));
    full = 1;
    sleep_ms(100); /* main waits for that one meanwhile, most likely */
    for (int i = 1; i < BLOCKS; i++) {
        slow_fill(block[i], 0xAA, 8 * MIB, CU_STREAM_PER_THREAD, 200);
        CU(cuMemFreeAsync(block[i], CU_STREAM_PER_THREAD));
    }
    CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return unused;
}

static void per_thread(void) {
    CUdeviceptr block[3];
    size_t wrong = 0;
    pthread_t thread;

    start_thread(&thread, frees_in_its_stream, NULL);
    while (!full)
        sleep_ms(1);
    for (int i = 0; i < 3; i++) {
        while (cuMemAlloc(&block[i], 8 * MIB) != CUDA_SUCCESS)
            sleep_ms(1);
        CU(cuMemsetD8Async(block[i], 0x11, 8 * MIB, CU_STREAM_PER_THREAD));
    }
    CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        wrong += wrong_on_device(block[i], 0x11, 8 * MIB);
    printf("wrong bytes: %zu\n", wrong);
}

/* --- Its free frees memory of the program's, while another thread ends the context */

static const char *the_library;

static void *ends_context(void *unused) {
    while (!*(_Atomic int *)library_symbol(the_library, "in_free"))
        sleep_ms(1);
    *(_Atomic int *)library_symbol(the_library, "free_may_go_on") = 1;
    CU(cuCtxDestroy(context));
    return unused;
}

static void nested(const char *library) {
    CUdeviceptr pointer, *theirs;
    CUdevice device;
    pthread_t thread;

    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&context, NULL, 0, device));
    CU(cuMemAlloc(&pointer, KIB));
    theirs = library_symbol(library, "theirs");
    for (int i = 0; i < 90; i++)
        CU(cuMemAlloc(&theirs[i], KIB));
    *(_Atomic int *)library_symbol(library, "handed_over") = 90;
    the_library = library;
    start_thread(&thread, ends_context, NULL);
    cuMemFree(pointer);
    pthread_join(thread, NULL);
    printf("both came back\n");
}

/* --- Not so that a free waits for what it would not have waited for */

static void async(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), waiter = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer[4];

    for (int i = 0; i < 4; i++)
        CU(cuMemAllocAsync(&pointer[i], 64 * MIB, stream));
    CU(cuLaunchHostFunc(waiter, wait_for_partner, NULL));
    for (int i = 0; i < 4; i++) {
        CU(cuMemFreeAsync(pointer[i], stream));
        CU(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < 2; i++) {
        CU(cuMemAllocAsync(&pointer[0], KIB, stream));
        CU(cuMemFreeAsync(pointer[0], stream));
        CU(cuStreamSynchronize(stream));
    }
    launch_partner(stream);
}

/* Frees on device 0, while a kernel of device 1 waits; before that, memory was freed there, too. */
static void devices(bool in_order) {
    CUcontext other = use_primary(1);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), waiter = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer;

    for (int i = 0; in_order && i < 4; i++) {
        CU(cuMemAllocAsync(&pointer, MIB, stream));
        CU(cuMemFreeAsync(pointer, stream));
        CU(cuStreamSynchronize(stream));
    }
    if (!in_order) {
        CU(cuMemAlloc(&pointer, MIB));
        slow_fill(pointer, 1, MIB, stream, 50);
        CU(cuMemFree(pointer));
    }
    CU(cuLaunchHostFunc(waiter, wait_for_partner, NULL));
    sleep_ms(100);
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++) {
        CU(cuMemAlloc(&pointer, MIB));
        CU(cuMemFree(pointer));
    }
    CU(cuCtxSetCurrent(other));
    launch_partner(stream);
}

/* What was freed on device 0 in a stream's order, and what is free on device 1 before and after. */
static void available(void) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer;
    CUcontext other = use_primary(1);
    size_t before, after, total;

    CU(cuMemAlloc(&pointer, 500 * MIB)); /* else there is no more to say */
    CU(cuMemGetInfo(&before, &total));
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++) {
        CU(cuMemAllocAsync(&pointer, i < 3 ? 20 * MIB : KIB, stream));
        CU(cuMemFreeAsync(pointer, stream));
        CU(cuStreamSynchronize(stream));
    }
    CU(cuCtxSetCurrent(other));
    CU(cuMemGetInfo(&after, &total));
    printf("more is free on the other device: %zu\n", after - before);
}

int main(int argc, char **argv) {
    const char *moment = argc > 1 ? argv[1] : "", *library = argc > 2 ? argv[2] : "";

    context = use_primary(0);
    if (strcmp(moment, "refused") == 0)
        refused();
    else if (strcmp(moment, "early") == 0)
        early(library);
    else if (strcmp(moment, "trim") == 0)
        trim();
    else if (strcmp(moment, "per-thread") == 0)
        per_thread();
    else if (strcmp(moment, "nested") == 0)
        nested(library);
    else if (strcmp(moment, "async") == 0)
        async();
    else if (strcmp(moment, "devices-async") == 0)
        devices(true);
    else if (strcmp(moment, "devices-sync") == 0)
        devices(false);
    else if (strcmp(moment, "available") == 0)
        available();
    return 0;
}
