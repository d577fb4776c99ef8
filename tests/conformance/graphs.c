/*
 * Graphs: captures into a graph that is there already and over several streams, and the memory that graphs allocate: launched
 * often, beside other allocations, freed outside, freed by the next launch, and what may not be done with such graphs.
 */
#include "conform.h"
#include "capture_modes.h"

#define SIZE (256 * KIB)

static cudaGraphExec_t instantiated(cudaGraph_t graph, unsigned long long flags) {
    cudaGraphExec_t executable;
    NEED(cudaGraphInstantiate(&executable, graph, flags));
    return executable;
}

static const char *state(cudaStream_t of) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    NEED(cudaStreamIsCapturing(of, &status));
    return status == cudaStreamCaptureStatusNone     ? "does not capture"
           : status == cudaStreamCaptureStatusActive ? "captures"
                                                     : "spoiled";
}

static const char *nodes_of(cudaGraph_t graph) {
    const char *types = types_of(graph);
    return *types ? types + 1 : "no nodes";
}

/* Ends the capture, says how, and gives the graph; NULL if there is none. */
static cudaGraph_t ended(cudaStream_t of) {
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(of, &graph);
    say("| end: %s", rt(error));
    cudaGetLastError();
    say("%s", graph ? nodes_of(graph) : "no graph");
    return graph;
}

void group_capture_into(void) {
    start();
    cudaGraph_t graph, same = NULL;
    cudaGraphNode_t first;
    char *target = memory(MALLOC, SIZE), *copy = memory(MALLOC, SIZE), *p = NULL;
    struct cudaMemsetParams whole = {.dst = target, .elementSize = 1, .value = 0x11, .width = SIZE, .height = 1};
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaGraphAddMemsetNode(&first, graph, NULL, 0, &whole));
    begin("behind a node");
    say_rt(cudaStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, cudaStreamCaptureModeGlobal));
    NEED(cudaMemsetAsync(target, 0x22, SIZE / 2, stream));
    say_rt(cudaStreamEndCapture(stream, &same));
    say("%s graph, %s", same == graph ? "the same" : same ? "another" : "no", nodes_of(graph));
    end();
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        begin("%s, memory beside it", modes[m].name);
        say_rt(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, modes[m].mode));
        say_rt(cudaMallocAsync((void **)&p, SIZE, stream));
        NEED(cudaMemsetAsync(p, 0x33, SIZE, stream));
        NEED(cudaMemcpyAsync(copy, p, SIZE, cudaMemcpyDeviceToDevice, stream));
        say_rt(cudaFreeAsync(p, stream));
        say_rt(cudaStreamEndCapture(stream, &same));
        say("%s graph, %s", same == graph ? "the same" : same ? "another" : "no", nodes_of(graph));
        end();
    }
    cudaGraphExec_t executable = instantiated(graph, 0);
    begin("launched");
    say_rt(cudaGraphLaunch(executable, stream));
    say("the node first: %s", yes_no(holds(target, 0x22, SIZE / 2) && holds(target + SIZE / 2, 0x11, SIZE / 2)));
    say("the memory's copy: %s", yes_no(holds(copy, 0x33, SIZE)));
    end();

    begin("into no graph");
    say_rt(cudaStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, cudaStreamCaptureModeGlobal));
    say("%s", state(stream));
    end();
    begin("on the legacy stream");
    say_rt(cudaStreamBeginCaptureToGraph(cudaStreamLegacy, graph, NULL, NULL, 0, cudaStreamCaptureModeGlobal));
    end();
    begin("in mode 9");
    say_rt(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, (enum cudaStreamCaptureMode)9));
    say("%s", state(stream));
    end();
    begin("cudaMalloc then");
    say_rt(cudaMalloc((void **)&p, SIZE));
    end();
    begin("twice on one stream");
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
    say_rt(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
    say("%s", state(stream));
    ended(stream);
    end();
    begin("cudaMallocAsync then");
    say_rt(cudaMallocAsync((void **)&p, SIZE, stream));
    end();
}

/* `to` goes on behind what `from` has so far. */
static void pass(cudaStream_t from, cudaStream_t to) {
    cudaEvent_t event;
    NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NEED(cudaEventRecord(event, from));
    NEED(cudaStreamWaitEvent(to, event, 0));
    NEED(cudaEventDestroy(event));
}

static void forked(enum cudaStreamCaptureMode mode, bool taken_first, bool freed_first, char *beside, char *copy) {
    void *p = NULL;
    NEED(cudaStreamBeginCapture(stream, mode));
    if (taken_first)
        say_rt(cudaMallocAsync(&p, SIZE, stream));
    pass(stream, second);
    NEED(cudaMemsetAsync(beside, 0x32, SIZE, stream));
    if (!taken_first)
        say_rt(cudaMallocAsync(&p, SIZE, second));
    NEED(cudaMemsetAsync(p, 0x31, SIZE, second));
    NEED(cudaMemcpyAsync(copy, p, SIZE, cudaMemcpyDeviceToDevice, second));
    if (!freed_first)
        say_rt(cudaFreeAsync(p, second));
    pass(second, stream);
    if (freed_first)
        say_rt(cudaFreeAsync(p, stream));
    cudaGraph_t graph = ended(stream);
    if (!graph)
        return;
    cudaGraphExec_t executable = instantiated(graph, 0);
    bool right = true;
    for (int i = 0; i < 3; i++) {
        NEED(cudaMemset(beside, 0, SIZE));
        NEED(cudaMemset(copy, 0, SIZE));
        NEED(cudaDeviceSynchronize());
        NEED(cudaGraphLaunch(executable, stream));
        right &= holds(beside, 0x32, SIZE) && holds(copy, 0x31, SIZE);
    }
    say("launches right: %s", yes_no(right));
    NEED(cudaGraphExecDestroy(executable));
    NEED(cudaGraphDestroy(graph));
}

/* A fork and a join by events: the joined stream captures, too. */
void group_capture_forked(void) {
    start();
    static const struct {
        const char *name;
        bool taken_first, freed_first;
    } ways[] = {{"taken and freed on the joined stream", false, false},
                {"taken on the joined stream, freed on the first", false, true},
                {"taken on the first, freed on the joined stream", true, false}};
    char *beside = memory(MALLOC, SIZE), *copy = memory(MALLOC, SIZE);
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        for (size_t w = 0; w < COUNT_OF(ways); w++) {
            begin("%s, %s", modes[m].name, ways[w].name);
            forked(modes[m].mode, ways[w].taken_first, ways[w].freed_first, beside, copy);
            end();
        }
        void *p = NULL, *old = memory(MALLOC, SIZE);
        begin("%s, cudaMalloc's freed on the joined stream", modes[m].name);
        NEED(cudaStreamBeginCapture(stream, modes[m].mode));
        pass(stream, second);
        say_rt(cudaFreeAsync(old, second));
        say("%s", state(second));
        pass(second, stream);
        ended(stream);
        say("cudaFree then:");
        say_rt(cudaFree(old));
        end();
        begin("%s, never joined", modes[m].name);
        NEED(cudaStreamBeginCapture(stream, modes[m].mode));
        pass(stream, second);
        say_rt(cudaMallocAsync(&p, SIZE, second));
        say_rt(cudaFreeAsync(p, second));
        ended(stream);
        say("the other stream %s:", state(second));
        say_rt(cudaMallocAsync(&p, SIZE, second));
        say_rt(cudaFreeAsync(p, second));
        end();
        NEED(cudaDeviceSynchronize());
    }
}

static unsigned long long of_graphs(CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;
    NEED_CU(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static unsigned long long of_pool(enum cudaMemPoolAttr attribute) {
    cudaMemPool_t pool;
    cuuint64_t value = 0;
    NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
    NEED(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

#define RESERVED CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT

/* A graph that takes SIZE bytes, fills them, copies them to `copy`, and frees them if so asked. */
static cudaGraph_t of_memory(void *copy, int value, bool frees, void **p) {
    cudaGraph_t graph;
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NEED(cudaMallocAsync(p, SIZE, stream));
    NEED(cudaMemsetAsync(*p, value, SIZE, stream));
    if (copy)
        NEED(cudaMemcpyAsync(copy, *p, SIZE, cudaMemcpyDeviceToDevice, stream));
    if (frees)
        NEED(cudaFreeAsync(*p, stream));
    NEED(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static int launches(cudaGraphExec_t executable, void *copy, int value, int times) {
    int right = 0;
    for (int i = 0; i < times; i++) {
        NEED(cudaMemsetAsync(copy, 0, SIZE, stream));
        NEED(cudaGraphLaunch(executable, stream));
        right += holds(copy, value, SIZE);
    }
    return right;
}

void group_graph_launches(void) {
    start();
    void *p, *copy = memory(MALLOC, SIZE);
    cudaGraph_t graph = of_memory(copy, 0x41, true, &p), other;
    cudaGraphExec_t executable = instantiated(graph, 0), again = NULL;
    unsigned long long pool_used = of_pool(cudaMemPoolAttrUsedMemCurrent);
    line("nodes", "%s", nodes_of(graph));
    line("one launch right", "%d", launches(executable, copy, 0x41, 1));
    unsigned long long once = of_graphs(RESERVED);
    line("the graphs' memory covers it", "%s", yes_no(once >= SIZE));
    line("100 launches right", "%d", launches(executable, copy, 0x41, 100));
    line("the graphs' memory is what it was", "%s", yes_no(of_graphs(RESERVED) == once));
    line("the default pool's used is what it was", "%s", yes_no(of_pool(cudaMemPoolAttrUsedMemCurrent) == pool_used));
    for (int i = 0; i < 100; i++)
        NEED(cudaGraphLaunch(executable, stream));
    line("100 launches in a row right", "%s", yes_no(holds(copy, 0x41, SIZE)));
    line("the graphs' memory is what it was then", "%s", yes_no(of_graphs(RESERVED) == once));
    begin("a second executable graph");
    say_rt(cudaGraphInstantiate(&again, graph, 0));
    end();
    begin("a clone");
    say_rt(cudaGraphClone(&other, graph));
    end();
    NEED(cudaGraphCreate(&other, 0));
    cudaGraphNode_t node;
    begin("as another's child");
    say_rt(cudaGraphAddChildGraphNode(&node, other, NULL, 0, graph));
    end();
    NEED(cudaGraphExecDestroy(executable));
    executable = instantiated(graph, 0);
    line("instantiated again, launch right", "%d", launches(executable, copy, 0x41, 1));
    line("trimmed while instantiated", "%s", rt(cudaDeviceGraphMemTrim(0)));
    line("trimmed, launch right", "%d", launches(executable, copy, 0x41, 1));
    NEED(cudaGraphExecDestroy(executable));
    NEED(cudaGraphDestroy(graph));
    NEED(cudaDeviceSynchronize());
    NEED(cudaDeviceGraphMemTrim(0));
    line("all gone and trimmed, the graphs' memory", "%llu", of_graphs(RESERVED));
}

/* Graphs without memory of their own use the program's. */
void group_graph_copies(void) {
    start();
    cudaGraph_t graph, clone, parent;
    cudaGraphExec_t executable;
    cudaGraphNode_t node;
    char *target = memory(MALLOC, SIZE), *copy = memory(ASYNC, SIZE);
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NEED(cudaMemsetAsync(target, 0x45, SIZE, stream));
    NEED(cudaMemcpyAsync(copy, target, SIZE, cudaMemcpyDeviceToDevice, stream));
    NEED(cudaStreamEndCapture(stream, &graph));
    begin("clone");
    say_rt(cudaGraphClone(&clone, graph));
    say("%s", nodes_of(clone));
    executable = instantiated(clone, 0);
    say("launches right: %d", launches(executable, copy, 0x45, 3));
    end();
    NEED(cudaGraphExecDestroy(executable));
    NEED(cudaGraphDestroy(clone));
    NEED(cudaGraphCreate(&parent, 0));
    begin("child");
    say_rt(cudaGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    NEED(cudaGraphDestroy(graph));
    say("%s", nodes_of(parent));
    executable = instantiated(parent, 0);
    say("launches right: %d", launches(executable, copy, 0x45, 3));
    end();
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    begin("launched into a capture");
    say_rt(cudaGraphLaunch(executable, stream));
    ended(stream);
    end();
    /* What was freed is another's: the graph is not to be launched any more, which harms nobody. */
    begin("its memory freed before it");
    say_rt(cudaFree(target));
    say_rt(cudaFreeAsync(copy, stream));
    say_rt(cudaGraphExecDestroy(executable));
    end();
}

enum { THREADS = 4, ROUNDS = 40 };
static int failed[THREADS], wrong[THREADS];

static void *allocate_beside(void *number) {
    int me = (int)(intptr_t)number;
    unsigned char *host = malloc(SIZE);
    cudaStream_t own;
    failed[me] += cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess;
    for (int i = 0; i < ROUNDS; i++) {
        void *p = NULL;
        bool async = (me + i) % 2;
        failed[me] += (async ? cudaMallocAsync(&p, SIZE, own) : cudaMalloc(&p, SIZE)) != cudaSuccess;
        failed[me] += cudaMemsetAsync(p, 0x60 + me, SIZE, own) != cudaSuccess;
        failed[me] += cudaMemcpyAsync(host, p, SIZE, cudaMemcpyDeviceToHost, own) != cudaSuccess;
        failed[me] += cudaStreamSynchronize(own) != cudaSuccess;
        wrong[me] += wrong_bytes(host, 0x60 + me, SIZE) != 0;
        failed[me] += (async ? cudaFreeAsync(p, own) : cudaFree(p)) != cudaSuccess;
    }
    free(host);
    return NULL;
}

void group_graph_beside(void) {
    start();
    void *p, *copy = memory(MALLOC, SIZE);
    cudaGraphExec_t executable = instantiated(of_memory(copy, 0x47, true, &p), 0);
    pthread_t threads[THREADS];
    int all_failed = 0, all_wrong = 0;
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], allocate_beside, (void *)(intptr_t)i);
    line("launches right beside allocations of other threads", "%d", launches(executable, copy, 0x47, 50));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all_failed += failed[i];
        all_wrong += wrong[i];
    }
    line("calls of the other threads that failed", "%d", all_failed);
    line("blocks of the other threads that were wrong", "%d", all_wrong);
}

/* Memory that a graph takes and the program frees. */
void group_graph_outlives(void) {
    start();
    void *p, *q, *mine = memory(MALLOC, SIZE), *ordered = memory(ASYNC, SIZE);
    cudaGraphExec_t takes = instantiated(of_memory(NULL, 0x48, false, &p), 0), frees;
    cudaGraph_t graph;
    begin("cudaFreeAsync on another stream");
    NEED(cudaGraphLaunch(takes, stream));
    pass(stream, second);
    say_rt(cudaFreeAsync(p, second));
    NEED(cudaStreamSynchronize(second));
    say("launched again:");
    say_rt(cudaGraphLaunch(takes, stream));
    say("holds its data: %s", yes_no(holds(p, 0x48, SIZE)));
    end();
    begin("freed by another graph");
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    say_rt(cudaFreeAsync(p, stream));
    graph = ended(stream);
    frees = instantiated(graph, 0);
    say_rt(cudaGraphLaunch(frees, stream));
    NEED(cudaStreamSynchronize(stream));
    say("launched again:");
    say_rt(cudaGraphLaunch(takes, stream));
    say("holds its data: %s", yes_no(holds(p, 0x48, SIZE)));
    end();
    begin("another block taken meanwhile");
    NEED(cudaMalloc(&q, SIZE));
    NEED(cudaMemset(q, 0x49, SIZE));
    say("the graph's data: %s, the block's: %s", yes_no(holds(p, 0x48, SIZE)), yes_no(holds(q, 0x49, SIZE)));
    end();
    begin("cudaFree, then cudaMalloc");
    say_rt(cudaFree(p));
    NEED(cudaMalloc(&q, SIZE));
    NEED(cudaMemset(q, 0x4a, SIZE));
    say_rt(cudaGraphLaunch(takes, stream));
    say("the graph's data: %s, the block's: %s", yes_no(holds(p, 0x48, SIZE)), yes_no(holds(q, 0x4a, SIZE)));
    say_rt(cudaFree(p));
    end();

    /* A capture names what is not a graph's in a free: refused, and the owner has it still. */
    begin("the program's own memory freed in a capture");
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    say_rt(cudaFreeAsync(mine, stream));
    say_rt(cudaFreeAsync(ordered, stream));
    ended(stream);
    NEED(cudaMemset(mine, 0x4b, SIZE));
    NEED(cudaMemset(ordered, 0x4c, SIZE));
    say("holds its data: %s %s", yes_no(holds(mine, 0x4b, SIZE)), yes_no(holds(ordered, 0x4c, SIZE)));
    say_rt(cudaFree(mine));
    say_rt(cudaFreeAsync(ordered, stream));
    end();
}

void group_graph_auto_free(void) {
    start();
    void *p, *copy = memory(MALLOC, SIZE);
    cudaGraph_t graph = of_memory(copy, 0x4d, false, &p);
    cudaGraphExec_t executable = instantiated(graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    line("nodes", "%s", nodes_of(graph));
    line("one launch right", "%d", launches(executable, copy, 0x4d, 1));
    unsigned long long once = of_graphs(RESERVED);
    line("50 launches without a free right", "%d", launches(executable, copy, 0x4d, 50));
    line("the graphs' memory is what it was", "%s", yes_no(of_graphs(RESERVED) == once));
    line("the memory holds its data", "%s", yes_no(holds(p, 0x4d, SIZE)));
    for (int w = 0; w < WAYS; w++) {
        begin("%s", way_name[w]);
        say_outcome(give(w, p));
        NEED(cudaStreamSynchronize(stream));
        say("again:");
        say_outcome(give(w, p));
        say("launched again:");
        say_rt(cudaGraphLaunch(executable, stream));
        say("holds its data: %s", yes_no(holds(p, 0x4d, SIZE)));
        end();
    }
    begin("cudaFree of the last");
    say_rt(cudaFree(p));
    end();
}
