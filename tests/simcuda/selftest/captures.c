/* captures.c — captures record, are spoiled by exactly what spoils them, and replay. */
#include "selftest.h"

#include <pthread.h>

static CUcontext ctx;
static CUstream s, s2;
static CUevent e, e2;

enum act {
    ALLOC,
    FREE,
    FREE_NOTHING,
    ALLOC_BESIDE,
    FREE_BESIDE,
    QUERY,
    FENCE,
    OTHER_ALLOC,
    OTHER_RELAXED,
    OTHER_FENCE,
    RELAXED_ALLOC,
    RELAXED_QUERY,
    RELAXED_SYNC,
    RELAXED_ID,
    RELAXED_CONTEXT,
    ACTS
};
static const char *const act_name[ACTS] = {"cuMemAlloc",
                                           "cuMemFree",
                                           "cuMemFree(0)",
                                           "cuMemAllocAsync on another stream",
                                           "cuMemFreeAsync on another stream",
                                           "cuEventQuery",
                                           "cuCtxRecordEvent",
                                           "another thread's cuMemAlloc",
                                           "another thread's relaxed cuMemAlloc",
                                           "another thread's relaxed fence",
                                           "cuMemAlloc in relaxed mode",
                                           "cuEventQuery in relaxed mode",
                                           "cuCtxSynchronize in relaxed mode",
                                           "cuStreamGetId in relaxed mode",
                                           "cuStreamGetCtx in relaxed mode"};
static CUdeviceptr spare;

static CUresult perform(enum act act) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    unsigned long long id;
    CUcontext owner;
    CUdeviceptr d;
    CUresult r;
    switch (act) {
    case ALLOC:
    case OTHER_ALLOC:
        r = cuMemAlloc(&d, 100);
        return r;
    case FREE:
        return cuMemFree(spare);
    case FREE_NOTHING:
        return cuMemFree(0);
    case ALLOC_BESIDE:
        return cuMemAllocAsync(&d, 100, s2);
    case FREE_BESIDE:
        return cuMemFreeAsync(spare, s2);
    case QUERY:
        return cuEventQuery(e2);
    case FENCE:
        return cuCtxRecordEvent(ctx, e2);
    default:
        break;
    }
    cuThreadExchangeStreamCaptureMode(&mode);
    switch (act) {
    case RELAXED_QUERY:
        r = cuEventQuery(e2);
        break;
    case OTHER_FENCE:
        r = cuCtxRecordEvent(ctx, e2);
        break;
    case RELAXED_SYNC:
        r = cuCtxSynchronize();
        break;
    case RELAXED_ID:
        r = cuStreamGetId(s, &id);
        break;
    case RELAXED_CONTEXT:
        r = cuStreamGetCtx(s, &owner);
        break;
    default:
        r = cuMemAlloc(&d, 100);
    }
    cuThreadExchangeStreamCaptureMode(&mode);
    return r;
}

static void *elsewhere(void *arg) {
    cuCtxSetCurrent(ctx);
    *(int *)arg = (int)perform((enum act) * (int *)arg);
    return NULL;
}

/* Rows: global, thread-local, relaxed; 1: refused and spoiled. */
static const int spoils[3][ACTS] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0},
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0},
    {0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0},
};

static void rules(void) {
    static const char *const mode_name[] = {"global", "thread-local", "relaxed"};
    for (int mode = 0; mode < 3; mode++)
        for (int act = 0; act < ACTS; act++) {
            CUgraph graph = NULL;
            char what[128];
            cuMemAlloc(&spare, 100);
            cuStreamBeginCapture(s, (CUstreamCaptureMode)mode);
            int r = act;
            if (act == OTHER_ALLOC || act == OTHER_RELAXED || act == OTHER_FENCE) {
                pthread_t thread;
                pthread_create(&thread, NULL, elsewhere, &r);
                pthread_join(thread, NULL);
            } else {
                r = (int)perform((enum act)act);
            }
            CUresult end = cuStreamEndCapture(s, &graph);
            bool spoiled = r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && end == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !graph;
            bool fine = r == CUDA_SUCCESS && end == CUDA_SUCCESS && graph;
            snprintf(what, sizeof(what), "%s in a %s capture: %s", act_name[act], mode_name[mode],
                     spoils[mode][act] ? "refused, spoils it" : "fine");
            check(spoils[mode][act] ? spoiled : fine, what);
            if (graph)
                cuGraphDestroy(graph);
            cuMemFree(spare);
        }
}

static void *end_elsewhere(void *arg) {
    CUgraph graph;
    cuCtxSetCurrent(ctx);
    *(CUresult *)arg = cuStreamEndCapture(s, &graph);
    return NULL;
}

static void states(void) {
    CUgraph graph;
    CUstreamCaptureStatus status;
    expect(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE, "ending what never began");
    expect(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           "the legacy stream cannot capture");
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamIsCapturing(s, &status);
    check(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "active");
    expect(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE, "beginning twice");
    CUresult elsewhere_result;
    pthread_t thread;
    pthread_create(&thread, NULL, end_elsewhere, &elsewhere_result);
    pthread_join(thread, NULL);
    expect(elsewhere_result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "ending in another thread");
    expect(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "synchronising a capturing stream");
    cuStreamIsCapturing(s, &status);
    check(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "invalidated");
    expect(cuMemsetD8Async(spare, 0, 1, s), CUDA_ERROR_INVALID_VALUE, "freed memory is refused");
    expect(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "ends without a graph");
    cuStreamIsCapturing(s, &status);
    check(status == CU_STREAM_CAPTURE_STATUS_NONE, "and is over");

    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    cuEventRecord(e, s);
    expect(cuStreamWaitEvent(s2, e, 0), CUDA_SUCCESS, "a second stream joins");
    cuLaunchHostFunc(s2, slow, NULL);
    expect(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "ending before it came back");
    expect(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT, "a captured event cannot be queried");
    CUstream blocking;
    cuStreamCreate(&blocking, 0);
    cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    expect(cuMemsetD8(spare, 0, 0), CUDA_SUCCESS, "nothing to set is nothing");
    cuMemAlloc(&spare, 100);
    expect(cuMemsetD8(spare, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "legacy work while a blocking stream captures");
    cuStreamEndCapture(blocking, &graph);
    cuMemFree(spare);
    cuStreamDestroy(blocking);
}

static void count_up(void *data) {
    ++*(int *)data;
}

static void replay(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p, q;
    int n = 0;
    size_t nodes = 0;
    cuMemAlloc(&p, 4096);
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuMemsetD8Async(p, 1, 4096, s);
    cuEventRecord(e, s);
    cuStreamWaitEvent(s2, e, 0);
    cuLaunchHostFunc(s2, count_up, &n);
    cuMemAllocAsync(&q, 1000, s);
    cuMemsetD8Async(q, 5, 1000, s);
    cuMemcpyDtoDAsync(p + 100, q, 100, s);
    cuMemFreeAsync(q, s);
    cuEventRecord(e2, s2);
    cuStreamWaitEvent(s, e2, 0);
    expect(cuStreamEndCapture(s, &graph), CUDA_SUCCESS, "a capture over two streams");
    cuGraphGetNodes(graph, NULL, &nodes);
    check(nodes == 6 && n == 0, "six nodes, nothing ran");
    cuGraphInstantiate(&exec, graph, 0);
    cuGraphDestroy(graph);
    size_t before, after, total;
    bool all = true;
    for (int i = 0; i < 1000; i++) {
        all &= cuGraphLaunch(exec, s) == CUDA_SUCCESS;
        if (i == 0)
            cuMemGetInfo(&before, &total);
    }
    cuMemGetInfo(&after, &total);
    cuStreamSynchronize(s);
    check(all && n == 1000 && byte_at(p) == 1 && byte_at(p + 199) == 5, "a thousand replays are correct");
    check(before == after, "and take no more memory");
    cuGraphLaunch(exec, s);
    cuGraphExecDestroy(exec);
    cuStreamSynchronize(s);
    check(n == 1001, "a graph destroyed after its launch still runs");
    cuMemFree(p);
}

static void memory_left(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr q;
    cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuMemAllocAsync(&q, 1000, s);
    cuMemsetD8Async(q, 9, 1000, s);
    cuStreamEndCapture(s, &graph);
    cuGraphInstantiate(&exec, graph, 0);
    expect(cuMemFree(q), CUDA_ERROR_INVALID_VALUE, "graph memory is nobody's before the launch");
    expect(cuGraphLaunch(exec, s), CUDA_SUCCESS, "launch");
    cuStreamSynchronize(s);
    check(byte_at(q + 999) == 9, "now it is there");
    expect(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE, "a second launch needs it freed");
    expect(cuMemFree(q), CUDA_SUCCESS, "cuMemFree frees it");
    expect(cuMemFree(q), CUDA_ERROR_INVALID_VALUE, "once");
    expect(cuGraphLaunch(exec, s), CUDA_SUCCESS, "launch again");
    expect(cuMemFreeAsync(q, s), CUDA_SUCCESS, "cuMemFreeAsync frees it too");
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuStreamSynchronize(s);
}

static void by_hand(void) {
    CUgraph graph, child;
    CUgraphExec exec;
    CUgraphNode a, b, c, d, f;
    int n = 0;
    CUdeviceptr p;
    cuMemAlloc(&p, 64);
    CUDA_HOST_NODE_PARAMS host = {.fn = count_up, .userData = &n}, wait = {.fn = slow, .userData = (void *)30};
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 3, .elementSize = 1, .width = 64, .height = 1};
    cuGraphCreate(&child, 0);
    cuGraphAddHostNode(&a, child, NULL, 0, &host);
    cuGraphAddHostNode(&b, child, &a, 1, &host);
    cuGraphCreate(&graph, 0);
    cuGraphAddHostNode(&a, graph, NULL, 0, &wait);
    cuGraphAddChildGraphNode(&b, graph, &a, 1, child);
    cuGraphAddMemsetNode(&c, graph, &b, 1, &set, ctx);
    cuGraphAddEventRecordNode(&d, graph, &c, 1, e);
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {.bytesize = 100};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    expect(cuGraphAddMemAllocNode(&f, graph, &d, 1, &memory), CUDA_SUCCESS, "an allocation node");
    expect(cuGraphAddMemFreeNode(&f, graph, &f, 1, memory.dptr), CUDA_SUCCESS, "a free node");
    expect(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS, "a graph made by hand");
    cuGraphLaunch(exec, s);
    expect(cuEventQuery(e), CUDA_ERROR_NOT_READY, "its event is pending");
    cuEventSynchronize(e);
    check(n == 2 && byte_at(p) == 3, "its nodes ran in order");
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuGraphDestroy(child);
    cuMemFree(p);
}

int main(void) {
    ctx = start(0);
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    cuEventCreate(&e2, CU_EVENT_DISABLE_TIMING);
    rules();
    states();
    replay();
    memory_left();
    by_hand();
    return finish();
}
