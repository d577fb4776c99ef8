/*
 * How long a context lives: its references, the primary's state and flags, and one that is destroyed with memory in use and frees
 * pending.
 */
#include "conform.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuCtxAttach, cuCtxDetach */

#define SIZE (4 * MIB)

static const char *whose(CUcontext context, CUcontext primary, CUcontext made) {
    return context == primary ? "the primary" : context == made ? "the new one" : context ? "another" : "none";
}

static CUcontext current(void) {
    CUcontext context = NULL;
    NEED_CU(cuCtxGetCurrent(&context));
    return context;
}

/* A context made twice: ended by its last reference, and by a destruction whatever the references. */
void group_attached(void) {
    start();
    CUcontext primary = current(), made, same = NULL;
    CUdeviceptr d, e;
    void *mine = memory(MALLOC, 4096);
    NEED_CU(cuCtxCreate(&made, NULL, 0, 0));
    CUresult error = cuCtxAttach(&same, 0);
    line("cuCtxAttach", "%s %s", cu(error), whose(same, primary, made));
    line("cuCtxAttach with flags", "%s", cu(cuCtxAttach(&same, 1)));
    NEED_CU(cuMemAlloc(&d, 4096));
    NEED_CU(cuMemAlloc(&e, 4096));
    line("cuCtxDetach of one of two", "%s", cu(cuCtxDetach(made)));
    line("current then", "%s", whose(current(), primary, made));
    line("cuMemFree of its memory", "%s", cu(cuMemFree(e)));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&e, 4096)));
    line("cuCtxDetach of the last", "%s", cu(cuCtxDetach(made)));
    line("current after the last", "%s", whose(current(), primary, made));
    line("cuMemFree of its memory after the last", "%s", cu(cuMemFree(e)));
    NEED_CU(cuCtxSetCurrent(primary));
    NEED_CU(cuCtxCreate(&made, NULL, 0, 0));
    NEED_CU(cuCtxAttach(&same, 0));
    NEED_CU(cuMemAlloc(&d, 4096));
    line("cuCtxDestroy of one attached", "%s", cu(cuCtxDestroy(made)));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuMemFree of its memory after that", "%s", cu(cuMemFree(d)));
    begin("cudaFree of the primary's");
    say_rt(cudaFree(mine));
    end();
}

static int over;

static void CUDART_CB late(void *unused) {
    (void)unused;
    sleep_ms(60);
    set_flag(&over);
}

/* Destroyed while it is current, its stream works, one block is in use, one freed in the stream's order behind the work, one
 * freed before it. */
void group_context_pending(void) {
    start();
    CUcontext primary = current(), made;
    CUstream own;
    CUdeviceptr kept, freed, ordered, pending;
    char *mine = memory(MALLOC, SIZE), *p = NULL;
    NEED(cudaMemset(mine, 0x51, SIZE));
    for (int round = 0; round < 2; round++) {
        over = 0;
        NEED_CU(cuCtxCreate(&made, NULL, 0, 0));
        NEED_CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
        NEED_CU(cuMemAlloc(&kept, SIZE));
        NEED_CU(cuMemAlloc(&freed, SIZE));
        NEED_CU(cuMemAllocAsync(&ordered, SIZE, own));
        NEED_CU(cuMemAllocAsync(&pending, SIZE, own));
        NEED_CU(cuMemsetD8Async(freed, 0x52, SIZE, own));
        NEED_CU(cuMemFree(freed));
        NEED_CU(cuLaunchHostFunc(own, late, NULL));
        NEED_CU(cuMemsetD8Async(kept, 0x53, SIZE, own));
        NEED_CU(cuMemsetD8Async(pending, 0x54, SIZE, own));
        NEED_CU(cuMemFreeAsync(pending, own));
        begin("round %d, cuCtxDestroy", round);
        say_cu(cuCtxDestroy(made));
        say("its work is over: %s, current: %s", yes_no(raised(&over)), whose(current(), primary, made));
        end();
        begin("round %d, cuMemFree of what was in use", round);
        say_cu(cuMemFree(kept));
        end();
        begin("round %d, cuMemFree of what was freed", round);
        say_cu(cuMemFree(freed));
        end();
        begin("round %d, cuMemFree of stream-ordered memory", round);
        say_cu(cuMemFree(ordered));
        end();
        begin("round %d, cuMemFree of what was freed in stream order", round);
        say_cu(cuMemFree(pending));
        end();
        begin("round %d, cudaMalloc", round);
        say_rt(cudaMalloc((void **)&p, SIZE));
        NEED(cudaMemset(p, 0x55, SIZE));
        say("the new data: %s, the old: %s", yes_no(holds(p, 0x55, SIZE)), yes_no(holds(mine, 0x51, SIZE)));
        say_rt(cudaFree(p));
        end();
        begin("round %d, cudaMallocAsync", round);
        say_rt(cudaMallocAsync((void **)&p, SIZE, stream));
        NEED(cudaMemsetAsync(p, 0x56, SIZE, stream));
        say("the new data: %s", yes_no(holds(p, 0x56, SIZE)));
        say_rt(cudaFreeAsync(p, stream));
        end();
    }
    begin("cudaFree of the primary's");
    say_rt(cudaFree(mine));
    end();
}

static int active(unsigned *flags) {
    int yes = -1;
    NEED_CU(cuDevicePrimaryCtxGetState(0, flags, &yes));
    return yes;
}

/* What the runtime and its memory do to the primary context's state. */
void group_primary_state(void) {
    unsigned before = 99, flags = 99;
    CUcontext context;
    void *p;
    NEED_CU(cuInit(0));
    int yes = active(&before);
    line("at first", "%d, flags %u", yes, before);
    NEED_CU(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
    yes = active(&before);
    line("flags set", "%d, flags %u", yes, before);
    start();
    yes = active(&flags);
    line("started", "%d, flags as set: %s", yes, yes_no(flags == before));
    before = flags;
    for (int k = 0; k < KINDS; k++) {
        p = memory(k, 4096);
        NEED(cudaFree(p));
        yes = active(&flags);
        line(kind_name[k], "%d, flags as before: %s", yes, yes_no(flags == before));
    }
    NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    line("retained, it is current already", "%s", yes_no(context == current()));
    p = memory(MALLOC, 4096);
    CUresult error = cuDevicePrimaryCtxRelease(0);
    line("released beside the runtime's hold", "%s %d", cu(error), active(&flags));
    begin("cudaFree then");
    say_rt(cudaFree(p));
    end();
    /* The runtime holds it once, whatever was allocated. */
    error = cuDevicePrimaryCtxRelease(0);
    line("the runtime's own released", "%s %d", cu(error), active(&flags));
}

/* As often retained as the program did: nobody else's reference keeps it, and none is missing. */
void group_primary_counted(void) {
    unsigned flags;
    CUcontext context;
    CUstream own;
    CUdeviceptr d, e;
    NEED_CU(cuInit(0));
    for (int i = 0; i < 3; i++)
        NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_CU(cuCtxSetCurrent(context));
    NEED_CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 100; i++) {
        NEED_CU(cuMemAlloc(&d, SIZE));
        NEED_CU(cuMemAllocAsync(&e, SIZE, own));
        NEED_CU(cuMemsetD8Async(d, 1, SIZE, own));
        NEED_CU(cuMemFreeAsync(e, own));
        NEED_CU(cuMemFree(d));
    }
    NEED_CU(cuMemAllocManaged(&d, 4096, CU_MEM_ATTACH_GLOBAL));
    NEED_CU(cuMemFree(d));
    NEED_CU(cuMemAlloc(&d, 4096));
    for (int i = 0; i < 3; i++) {
        NEED_CU(cuMemAlloc(&e, 4096)); /* not the first of the segment that an allocator may have it from */
        CUresult error = cuDevicePrimaryCtxRelease(0);
        begin("release %d of 3", i + 1);
        say("%s, active: %d, cuMemFree of memory from before:", cu(error), active(&flags));
        say("%s", cu(cuMemFree(e)));
        end();
    }
    line("one too many", "%s", cu(cuDevicePrimaryCtxRelease(0)));
    NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_CU(cuCtxSetCurrent(context));
    line("retained again, active", "%d", active(&flags));
    line("cuMemFree of the old memory", "%s", cu(cuMemFree(d)));
    line("cuDevicePrimaryCtxReset", "%s", cu(cuDevicePrimaryCtxReset(0)));
    line("active after the reset", "%d", active(&flags));
    line("release after the reset", "%s", cu(cuDevicePrimaryCtxRelease(0)));
    line("active after that", "%d", active(&flags));
}
