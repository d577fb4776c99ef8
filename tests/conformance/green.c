/*
 * Green contexts: parts of the primary context with streams of their own. Whose the memory is, who may free it, and in what order
 * it is handed on.
 */
#include "conform.h"

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */

static CUcontext primary, green_context;
static CUgreenCtx green;
static CUstream green_stream;

static CUresult make_green(void) {
    CUdevResource all, part, rest;
    CUdevResourceDesc description;
    unsigned groups = 1;
    NEED_CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    NEED_CU(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 8));
    NEED_CU(cuDevResourceGenerateDesc(&description, &part, 1));
    return cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
}

static void start_green(void) {
    start();
    NEED_CU(cuCtxGetCurrent(&primary));
    NEED_CU(make_green());
    NEED_CU(cuCtxFromGreenCtx(&green_context, green));
    NEED_CU(cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0));
}

static const char *name_of(CUcontext context) {
    return context == primary ? "primary" : context == green_context ? "green" : context ? "other" : "none";
}

static const char *current(void) {
    CUcontext context = NULL;
    CUresult error = cuCtxGetCurrent(&context);
    return error == CUDA_SUCCESS ? name_of(context) : cu(error);
}

static const char *owner(void *p) {
    CUcontext context = NULL;
    CUresult error = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)p);
    return error == CUDA_SUCCESS ? name_of(context) : cu(error);
}

/* The kinds with this context current, freed with the other one current in each way. */
static void cross(CUcontext takes, CUcontext frees) {
    static const enum kind kinds[] = {MALLOC, PITCH, MANAGED, ASYNC, DRIVER, DRIVER_ASYNC};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (int w = 0; w < WAYS; w++) {
            void *p = NULL;
            NEED_CU(cuCtxSetCurrent(takes));
            begin("%s in %s, %s in %s", kind_name[kinds[k]], name_of(takes), way_name[w], name_of(frees));
            say_outcome(take(kinds[k], &p, 4096));
            say("%s of %s, current: %s,", pointer(p), p ? owner(p) : "none", current());
            NEED_CU(cuCtxSetCurrent(frees));
            say_outcome(give(w, p));
            say("current: %s", current());
            NEED_CU(cuCtxSetCurrent(primary));
            NEED(cudaDeviceSynchronize());
            end();
            drop(p);
        }
    }
}

void group_green(void) {
    unsigned flags;
    int active = -1;
    unsigned long long ids[2] = {0};
    CUdevice device = -1;
    size_t a, b;
    start();
    NEED_CU(cuCtxGetCurrent(&primary));
    line("cuGreenCtxCreate", "%s", cu(make_green()));
    line("current then", "%s", current());
    NEED_CU(cuCtxFromGreenCtx(&green_context, green));
    line("its context is the primary", "%s", yes_no(green_context == primary));
    CUresult error = cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0);
    line("cuGreenCtxStreamCreate", "%s", cu(error));
    error = cuDevicePrimaryCtxGetState(0, &flags, &active);
    line("the primary's state", "%s %d", cu(error), active);
    NEED_CU(cuCtxGetId(primary, &ids[0]));
    NEED_CU(cuCtxGetId(green_context, &ids[1]));
    line("numbers", "%s", ids[0] == ids[1] ? "the same" : "two");
    line("cuCtxSetCurrent", "%s", cu(cuCtxSetCurrent(green_context)));
    error = cuCtxGetDevice(&device);
    line("device", "%s %d", cu(error), device);
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    begin("cuMemAllocAsync on its stream");
    CUdeviceptr d = (CUdeviceptr)KEPT;
    say_cu(cuMemAllocAsync(&d, 4096, green_stream));
    say("%s,", pointer((void *)d));
    say_cu(cuMemFreeAsync(d, green_stream));
    say("again:");
    say_cu(cuMemFreeAsync(d, green_stream));
    end();
    begin("cuMemAllocAsync on its stream with the primary current");
    NEED_CU(cuCtxSetCurrent(primary));
    say_cu(cuMemAllocAsync(&d, 4096, green_stream));
    say("of %s, cuMemFree:", owner((void *)d));
    say_cu(cuMemFree(d));
    say("current: %s", current());
    end();
    begin("cuMemAllocAsync on the primary's stream, cuMemFreeAsync on its");
    say_cu(cuMemAllocAsync(&d, 4096, stream));
    NEED(cudaStreamSynchronize(stream));
    say_cu(cuMemFreeAsync(d, green_stream));
    end();
    begin("cudaMalloc's freed on its stream");
    void *p = memory(MALLOC, 4096);
    say_rt(cudaFreeAsync(p, green_stream));
    end();
    NEED_CU(cuCtxSetCurrent(NULL));
    begin("cuMemAllocAsync on its stream with no context current");
    say_cu(cuMemAllocAsync(&d, 4096, green_stream));
    say_cu(cuMemFreeAsync(d, green_stream));
    say("current: %s", current());
    end();
    cross(primary, green_context);
    cross(green_context, primary);
    cross(green_context, green_context);
}

/* The old owner's late write, on one stream, must not be seen by the new owner, whose write is on the other. */
static void recycled(CUstream old_work, CUstream new_work, CUcontext current_one, const char *name) {
    void *old = memory(MALLOC, SIZE);
    char *copy[3];
    bool intact = true;
    occupy(old_work, 60);
    NEED_CU(cuMemsetD8Async((CUdeviceptr)old, 0x11, SIZE, old_work));
    NEED_CU(cuCtxSetCurrent(current_one));
    CUresult freed = cuMemFree((CUdeviceptr)old);
    for (size_t i = 0; i < COUNT_OF(copy); i++) {
        NEED(cudaMalloc((void **)&copy[i], SIZE));
        NEED_CU(cuMemsetD8Async((CUdeviceptr)copy[i], 0x22, SIZE, new_work));
    }
    NEED_CU(cuCtxSetCurrent(primary));
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        intact &= holds(copy[i], 0x22, 4096) && holds(copy[i] + SIZE - 4096, 0x22, 4096);
    line(name, "%s, new owner's data intact: %s", cu(freed), yes_no(intact));
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        drop(copy[i]);
}

void group_green_order(void) {
    start_green();
    static const enum kind kinds[] = {MALLOC, MANAGED, DRIVER, ASYNC};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        void *p = memory(kinds[k], 4096);
        begin("free of %s beside work on a green stream", kind_name[kinds[k]]);
        busy(green_stream);
        cudaError_t error = cudaFree(p);
        say("%s, waits: %s", rt(error), waited());
        end();
        NEED(cudaDeviceSynchronize());
    }
    recycled(green_stream, stream, primary, "the green stream's, then the primary's stream");
    recycled(stream, green_stream, primary, "the primary's stream's, then the green stream");
    recycled(green_stream, green_stream, primary, "the green stream's, then the green stream");
    recycled(green_stream, stream, green_context, "freed in green, the green stream's, then the primary's stream");
    recycled(stream, green_stream, green_context, "freed in green, the primary's stream's, then the green stream");
}

/* It goes with memory in use, which is the primary's. */
void group_green_destroyed(void) {
    CUdeviceptr kept, ordered, d;
    unsigned flags;
    int active;
    start_green();
    void *mine = memory(MALLOC, 4096);
    NEED(cudaMemset(mine, 0x57, 4096));
    NEED_CU(cuCtxSetCurrent(green_context));
    NEED_CU(cuMemAlloc(&kept, 4096));
    NEED_CU(cuMemAllocAsync(&ordered, 4096, green_stream));
    NEED_CU(cuMemsetD8Async(kept, 0x58, 4096, green_stream));
    NEED_CU(cuMemsetD8Async(ordered, 0x59, 4096, green_stream));
    NEED_CU(cuStreamSynchronize(green_stream));
    NEED_CU(cuStreamDestroy(green_stream));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuGreenCtxDestroy", "%s", cu(cuGreenCtxDestroy(green)));
    line("current then", "%s", current());
    CUresult error = cuDevicePrimaryCtxGetState(0, &flags, &active);
    line("the primary's state", "%s %d", cu(error), active);
    line("memory taken in it holds its data", "%s", yes_no(holds((void *)kept, 0x58, 4096)));
    line("stream-ordered memory holds its data", "%s", yes_no(holds((void *)ordered, 0x59, 4096)));
    line("the primary's memory holds its data", "%s", yes_no(holds(mine, 0x57, 4096)));
    line("cuMemFree of memory taken in it", "%s", cu(cuMemFree(kept)));
    line("again", "%s", cu(cuMemFree(kept)));
    line("cuMemFree of its stream-ordered memory", "%s", cu(cuMemFree(ordered)));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&d, 4096)));
    begin("cudaFree of the primary's");
    say_rt(cudaFree(mine));
    end();
    begin("a second one, cuMemAlloc in it");
    NEED_CU(make_green());
    NEED_CU(cuCtxFromGreenCtx(&green_context, green));
    NEED_CU(cuCtxSetCurrent(green_context));
    say_cu(cuMemAlloc(&kept, 4096));
    say_cu(cuMemFree(kept));
    say("current: %s", current());
    end();
}

/* Without the runtime, whose own hold on the primary would keep it. */
void group_green_alone(void) {
    CUdeviceptr d;
    unsigned flags;
    int active = -1;
    NEED_CU(cuInit(0));
    line("cuGreenCtxCreate", "%s", cu(make_green()));
    CUresult error = cuDevicePrimaryCtxGetState(0, &flags, &active);
    line("the primary's state", "%s %d", cu(error), active);
    line("current then", "%s", current());
    NEED_CU(cuCtxFromGreenCtx(&green_context, green));
    NEED_CU(cuCtxSetCurrent(green_context));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&d, 4096)));
    line("cuMemFree", "%s", cu(cuMemFree(d)));
    line("again", "%s", cu(cuMemFree(d)));
    NEED_CU(cuMemAlloc(&d, 4096));
    NEED_CU(cuCtxSetCurrent(NULL));
    line("cuGreenCtxDestroy with memory in use", "%s", cu(cuGreenCtxDestroy(green)));
    error = cuDevicePrimaryCtxGetState(0, &flags, &active);
    line("the primary's state then", "%s %d", cu(error), active);
    NEED_CU(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuMemFree in the primary", "%s", cu(cuMemFree(d)));
    line("cuMemAlloc in the primary", "%s", cu(cuMemAlloc(&d, 4096)));
}
