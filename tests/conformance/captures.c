/*
 * What may be called while a stream is captured into a graph, in the three modes, by the capturing thread and another; whether
 * the capture lives; and the memory that graphs have.
 */
#include "conform.h"
#include "capture_modes.h"

static void *made, *old_sync, *old_async, *old_managed, *old_large;
static cudaEvent_t event;

static void act_nothing(void) {
    say("-");
}

static void act_malloc(void) {
    say_rt(cudaMalloc(&made, 4096));
}

static void act_malloc_zero(void) {
    say_rt(cudaMalloc(&made, 0));
}

static void act_malloc_huge(void) {
    say_rt(cudaMalloc(&made, SIZE_MAX));
}

static void act_malloc_large(void) {
    say_rt(cudaMalloc(&made, 65 * MIB));
}

static void act_mem_alloc(void) {
    say_cu(cuMemAlloc((CUdeviceptr *)&made, 4096));
}

static void act_pitch(void) {
    size_t pitch;
    say_rt(cudaMallocPitch(&made, &pitch, 100, 10));
}

static void act_managed(void) {
    say_rt(cudaMallocManaged(&made, 4096, cudaMemAttachGlobal));
}

static void act_async_other(void) {
    say_rt(cudaMallocAsync(&made, 4096, second));
}

static void act_from_pool_other(void) {
    say_rt(cudaMallocFromPoolAsync(&made, 4096, own_pool, second));
}

static void act_async_pair_captured(void) {
    void *p = NULL;
    say_rt(cudaMallocAsync(&p, 4096, stream));
    say_rt(cudaMemsetAsync(p, 1, 4096, stream));
    say_rt(cudaFreeAsync(p, stream));
}

static void act_from_pool_captured(void) {
    void *p = NULL;
    say_rt(cudaMallocFromPoolAsync(&p, 4096, own_pool, stream));
    say_rt(cudaFreeAsync(p, stream));
}

static void act_async_captured_kept(void) {
    void *p = NULL;
    say_rt(cudaMallocAsync(&p, 4096, stream));
    say("%s", pointer(p));
}

static void act_async_zero_captured(void) {
    void *p = KEPT;
    say_rt(cudaMallocAsync(&p, 0, stream));
    say("%s", pointer(p));
}

static void act_async_huge_captured(void) {
    void *p = KEPT;
    say_rt(cudaMallocAsync(&p, SIZE_MAX, stream));
    say("%s", pointer(p));
}

static void act_free(void) {
    cudaError_t error = cudaFree(old_sync);
    say_rt(error);
    if (error == cudaSuccess)
        old_sync = NULL;
}

/* Enough that an allocator underneath would want to do something about it. */
static void act_free_large(void) {
    cudaError_t error = cudaFree(old_large);
    say_rt(error);
    if (error == cudaSuccess)
        old_large = NULL;
}

static void act_mem_free(void) {
    CUresult error = cuMemFree((CUdeviceptr)old_sync);
    say_cu(error);
    if (error == CUDA_SUCCESS)
        old_sync = NULL;
}

static void act_free_managed(void) {
    cudaError_t error = cudaFree(old_managed);
    say_rt(error);
    if (error == cudaSuccess)
        old_managed = NULL;
}

static void act_free_async_memory(void) {
    cudaError_t error = cudaFree(old_async);
    say_rt(error);
    if (error == cudaSuccess)
        old_async = NULL;
}

static void act_free_null(void) {
    say_rt(cudaFree(NULL));
}

static void act_free_bad(void) {
    say_rt(cudaFree((void *)0x1234));
}

static void act_free_async_other(void) {
    cudaError_t error = cudaFreeAsync(old_async, second);
    say_rt(error);
    if (error == cudaSuccess)
        old_async = NULL;
}

static void act_free_async_sync_memory_other(void) {
    cudaError_t error = cudaFreeAsync(old_sync, second);
    say_rt(error);
    if (error == cudaSuccess)
        old_sync = NULL;
}

static void act_free_async_captured(void) {
    say_rt(cudaFreeAsync(old_async, stream));
}

static void act_free_async_sync_memory_captured(void) {
    say_rt(cudaFreeAsync(old_sync, stream));
}

static void act_free_async_null_captured(void) {
    say_rt(cudaFreeAsync(NULL, stream));
}

static void act_info(void) {
    size_t free_bytes, total;
    say_rt(cudaMemGetInfo(&free_bytes, &total));
}

static void act_attributes(void) {
    struct cudaPointerAttributes attributes;
    say_rt(cudaPointerGetAttributes(&attributes, old_sync));
}

static void act_range(void) {
    CUdeviceptr base;
    size_t size;
    say_cu(cuMemGetAddressRange(&base, &size, (CUdeviceptr)old_sync));
}

static void act_pinned(void) {
    void *p = NULL;
    say_rt(cudaMallocHost(&p, 4096));
}

static void act_trim(void) {
    say_rt(cudaMemPoolTrimTo(own_pool, 0));
}

static void act_ipc(void) {
    cudaIpcMemHandle_t handle;
    say_rt(cudaIpcGetMemHandle(&handle, old_sync));
}

static void act_synchronise_device(void) {
    say_rt(cudaDeviceSynchronize());
}

static void act_synchronise_other(void) {
    say_rt(cudaStreamSynchronize(second));
}

static void act_synchronise_captured(void) {
    say_rt(cudaStreamSynchronize(stream));
}

static void act_query_event(void) {
    say_rt(cudaEventQuery(event));
}

static void act_create_memory(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult error = cuMemCreate(&handle, 2 * MIB, &properties, 0);
    say_cu(error);
    if (error == CUDA_SUCCESS)
        cuMemRelease(handle);
}

/* A thread may declare that it knows what it does. */
static void act_malloc_exchanged(void) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    say_rt(cudaMalloc(&made, 4096));
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
}

static void act_free_exchanged(void) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
    act_free();
    NEED(cudaThreadExchangeStreamCaptureMode(&mode));
}

static const struct act {
    const char *name;
    void (*run)(void);
} acts[] = {
    {"nothing", act_nothing},
    {"cudaMalloc", act_malloc},
    {"cudaMalloc(0)", act_malloc_zero},
    {"cudaMalloc(SIZE_MAX)", act_malloc_huge},
    {"cudaMalloc(65MiB)", act_malloc_large},
    {"cudaMalloc, relaxed thread", act_malloc_exchanged},
    {"cuMemAlloc", act_mem_alloc},
    {"cudaMallocPitch", act_pitch},
    {"cudaMallocManaged", act_managed},
    {"cudaMallocHost", act_pinned},
    {"cuMemCreate", act_create_memory},
    {"cudaMallocAsync, other stream", act_async_other},
    {"cudaMallocFromPoolAsync, other stream", act_from_pool_other},
    {"cudaMallocAsync + cudaFreeAsync, captured stream", act_async_pair_captured},
    {"cudaMallocFromPoolAsync + cudaFreeAsync, captured stream", act_from_pool_captured},
    {"cudaMallocAsync, captured stream", act_async_captured_kept},
    {"cudaMallocAsync(0), captured stream", act_async_zero_captured},
    {"cudaMallocAsync(SIZE_MAX), captured stream", act_async_huge_captured},
    {"cudaFree", act_free},
    {"cudaFree, 65MiB", act_free_large},
    {"cudaFree, relaxed thread", act_free_exchanged},
    {"cudaFree(NULL)", act_free_null},
    {"cudaFree of nobody's", act_free_bad},
    {"cudaFree of managed memory", act_free_managed},
    {"cudaFree of stream-ordered memory", act_free_async_memory},
    {"cuMemFree", act_mem_free},
    {"cudaFreeAsync, other stream", act_free_async_other},
    {"cudaFreeAsync of cudaMalloc's, other stream", act_free_async_sync_memory_other},
    {"cudaFreeAsync, captured stream", act_free_async_captured},
    {"cudaFreeAsync of cudaMalloc's, captured stream", act_free_async_sync_memory_captured},
    {"cudaFreeAsync(NULL), captured stream", act_free_async_null_captured},
    {"cudaMemGetInfo", act_info},
    {"cudaPointerGetAttributes", act_attributes},
    {"cuMemGetAddressRange", act_range},
    {"cudaIpcGetMemHandle", act_ipc},
    {"cudaMemPoolTrimTo", act_trim},
    {"cudaDeviceSynchronize", act_synchronise_device},
    {"cudaStreamSynchronize, other stream", act_synchronise_other},
    {"cudaStreamSynchronize, captured stream", act_synchronise_captured},
    {"cudaEventQuery", act_query_event},
};

static void run_act(void *act) {
    ((const struct act *)act)->run();
}

/* given: what was captured into, NULL if the capture made its own. After a spoiled capture that one is left alone. */
static void say_end(cudaGraph_t given) {
    cudaGraph_t graph = NULL;
    size_t nodes = 0;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    say("| end: %s", rt(error));
    cudaGetLastError();
    if (graph && given && graph != given)
        say("another graph");
    if (graph && cudaGraphGetNodes(graph, NULL, &nodes) == cudaSuccess)
        say("%zu nodes", nodes);
    else
        say("no graph");
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
}

static void matrix(bool threaded, bool into) {
    start();
    NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NEED(cudaEventRecord(event, second));
    NEED(cudaDeviceSynchronize());
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        for (size_t a = 0; a < COUNT_OF(acts); a++) {
            enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            cudaGraph_t graph = NULL;
            void *target = memory(MALLOC, 4096);
            old_sync = memory(MALLOC, 4096);
            old_async = memory(ASYNC, 4096);
            old_managed = memory(MANAGED, 4096);
            old_large = memory(MALLOC, 65 * MIB);
            made = NULL;
            begin("%s, %s", modes[m].name, acts[a].name);
            if (into)
                NEED(cudaGraphCreate(&graph, 0));
            NEED(into ? cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, modes[m].mode)
                      : cudaStreamBeginCapture(stream, modes[m].mode));
            if (threaded)
                in_thread(run_act, (void *)&acts[a]);
            else
                acts[a].run();
            cudaMemsetAsync(target, 1, 4096, stream);
            cudaGetLastError();
            NEED(cudaStreamIsCapturing(stream, &status));
            say("| capture %s", status == cudaStreamCaptureStatusActive ? "lives"
                                : status == cudaStreamCaptureStatusNone ? "ended"
                                                                        : "spoiled");
            say_end(graph);
            end();
            NEED(cudaDeviceSynchronize());
            drop(made);
            drop(target);
            drop(old_sync);
            drop(old_async);
            drop(old_managed);
            drop(old_large);
        }
    }
}

void group_capture_own(void) {
    matrix(false, false);
}

void group_capture_thread(void) {
    matrix(true, false);
}

void group_capture_to_graph_own(void) {
    matrix(false, true);
}

void group_capture_to_graph_thread(void) {
    matrix(true, true);
}

/* A stream that the legacy stream waits for is captured: legacy work would have to wait for something that does not run. */
void group_capture_implicit(void) {
    start();
    cudaStream_t blocking, own = stream;
    NEED(cudaStreamCreate(&blocking));
    static const char *const names[] = {"cudaMallocAsync on the legacy stream", "cudaFreeAsync on the legacy stream",
                                        "cudaMallocAsync on the per-thread stream", "cudaMemsetAsync on the legacy stream",
                                        "cudaFree(NULL)"};
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        for (size_t i = 0; i < COUNT_OF(names); i++) {
            void *p = NULL, *old = memory(ASYNC, 4096);
            begin("%s, %s", modes[m].name, names[i]);
            NEED(cudaStreamBeginCapture(blocking, modes[m].mode));
            say_rt(i == 0   ? cudaMallocAsync(&p, 64, cudaStreamLegacy)
                   : i == 1 ? cudaFreeAsync(old, cudaStreamLegacy)
                   : i == 2 ? cudaMallocAsync(&p, 64, cudaStreamPerThread)
                   : i == 3 ? cudaMemsetAsync(old, 1, 64, cudaStreamLegacy)
                            : cudaFree(NULL));
            stream = blocking;
            say_end(NULL);
            stream = own;
            end();
            NEED(cudaDeviceSynchronize());
            drop(p);
            drop(old);
        }
    }
}

const char *types_of(cudaGraph_t graph) {
    static char text[200];
    cudaGraphNode_t nodes[16];
    size_t n = COUNT_OF(nodes), used = 0;
    text[0] = '\0';
    NEED(cudaGraphGetNodes(graph, nodes, &n));
    unsigned of_type[32] = {0};
    for (size_t i = 0; i < n; i++) {
        enum cudaGraphNodeType type;
        NEED(cudaGraphNodeGetType(nodes[i], &type));
        of_type[type & 31]++;
    }
    for (size_t t = 0; t < COUNT_OF(of_type); t++)
        if (of_type[t])
            used += (size_t)snprintf(text + used, sizeof text - used, " type%zu*%u", t, of_type[t]);
    return text;
}

void group_graph_memory(void) {
    start();
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    void *p = NULL, *copy = memory(MALLOC, 4096);

    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NEED(cudaMallocAsync(&p, 4096, stream));
    NEED(cudaMemsetAsync(p, 0x42, 4096, stream));
    NEED(cudaMemcpyAsync(copy, p, 4096, cudaMemcpyDeviceToDevice, stream));
    NEED(cudaFreeAsync(p, stream));
    NEED(cudaStreamEndCapture(stream, &graph));
    line("captured pair, nodes", "%s", types_of(graph));
    NEED(cudaGraphInstantiate(&executable, graph, 0));
    begin("captured pair, cudaFree before the first launch");
    say_rt(cudaFree(p));
    end();
    bool right = true;
    for (int i = 0; i < 20; i++) {
        NEED(cudaMemsetAsync(copy, 0, 4096, stream));
        NEED(cudaGraphLaunch(executable, stream));
        right &= holds(copy, 0x42, 4096);
    }
    line("captured pair, 20 launches right", "%s", yes_no(right));
    begin("captured pair, cudaFree after the launches");
    say_rt(cudaFree(p));
    end();
    begin("captured pair, cudaFreeAsync after the launches");
    say_rt(cudaFreeAsync(p, stream));
    end();
    NEED(cudaGraphExecDestroy(executable));
    NEED(cudaGraphDestroy(graph));

    /* Memory that the graph leaves to the program. */
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NEED(cudaMallocAsync(&p, 4096, stream));
    NEED(cudaMemsetAsync(p, 0x43, 4096, stream));
    NEED(cudaStreamEndCapture(stream, &graph));
    line("left allocated, nodes", "%s", types_of(graph));
    NEED(cudaGraphInstantiate(&executable, graph, 0));
    for (int w = 0; w < WAYS; w++) {
        begin("left allocated, launched twice, %s", way_name[w]);
        say_rt(cudaGraphLaunch(executable, stream));
        NEED(cudaStreamSynchronize(stream));
        say("holds its data: %s", yes_no(holds(p, 0x43, 4096)));
        say("second launch:");
        say_rt(cudaGraphLaunch(executable, stream));
        NEED(cudaStreamSynchronize(stream));
        say("%s:", way_name[w]);
        say_outcome(give(w, p));
        NEED(cudaStreamSynchronize(stream));
        say("again:");
        say_outcome(give(w, p));
        end();
    }
    NEED(cudaGraphExecDestroy(executable));
    NEED(cudaGraphDestroy(graph));

    /* A free node for memory that came from elsewhere. */
    static const enum kind kinds[] = {MALLOC, MANAGED, ASYNC, FROM_POOL};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        cudaGraphNode_t node;
        void *q = memory(kinds[k], 4096);
        NEED(cudaGraphCreate(&graph, 0));
        begin("free node for memory of %s", kind_name[kinds[k]]);
        say_rt(cudaGraphAddMemFreeNode(&node, graph, NULL, 0, q));
        end();
        NEED(cudaGraphDestroy(graph));
        begin("%s still there", kind_name[kinds[k]]);
        say_rt(cudaFree(q));
        end();
    }
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"0", 0}, {"1", 1}, {"SIZE_MAX", SIZE_MAX}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct cudaMemAllocNodeParams parameters = {
            .poolProps = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}},
            .bytesize = sizes[i].size};
        cudaGraphNode_t node;
        NEED(cudaGraphCreate(&graph, 0));
        begin("allocation node(%s)", sizes[i].name);
        say_rt(cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
        say("%s", pointer(parameters.dptr));
        end();
        NEED(cudaGraphDestroy(graph));
    }
    line("cudaDeviceGraphMemTrim", "%s", rt(cudaDeviceGraphMemTrim(0)));
}
