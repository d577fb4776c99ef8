/*
 * A stream captures, and an allocation needs more than a cache has ready. Asks for the driver's version before and after it, so
 * that a log shows what was called in between.
 *
 *     capture_full full     the device is full, and the cache has freed blocks: in pieces, none of them large enough, or as much as
 *                           is asked for in all. It may be served or refused for lack of memory. Only where such a call is legal
 *                           natively: in relaxed mode, or in another thread than the capturing one. Wants a device of 256 MiB
 *                           (SIMCUDA_MEMORY=256M).
 *     capture_full grow     there is memory enough, but the cache must ask for it: in stream order, in every mode, by either
 *                           thread; natively it is refused in some of these, and the capture is spoiled
 */
#include "driver.h"

#define PIECE (8 * MIB)
#define PIECES 64 /* more than there is */
#define LARGE (96 * MIB)
#define VALUE 0x5a

static CUcontext context;
static CUstream captured, other;
static CUdeviceptr target, got;

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

struct way {
    CUstreamCaptureMode mode;
    bool thread, ordered;
    CUstreamCaptureMode own; /* of the thread that allocates */
};

static void mark(void) {
    int version;
    CU(cuDriverGetVersion(&version));
}

static void *allocate(void *argument) {
    const struct way *way = argument;
    CUstreamCaptureMode mode = way->own;

    CU(cuCtxSetCurrent(context));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    mark();
    CUresult result = way->ordered ? cuMemAllocAsync(&got, LARGE, other) : cuMemAlloc(&got, LARGE);
    mark();
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    printf("%s, mode kept: %s",
           result == CUDA_SUCCESS               ? "served"
           : result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
                                                : "another error",
           yes_no(mode == way->own));
    return NULL;
}

static bool replays(CUgraph graph) {
    CUgraphExec executable;

    CU(cuGraphInstantiate(&executable, graph, 0));
    CU(cuGraphLaunch(executable, captured));
    CU(cuStreamSynchronize(captured));
    CU(cuGraphExecDestroy(executable));
    CU(cuGraphDestroy(graph));
    return wrong_on_device(target, VALUE, KIB) == 0;
}

static void capture(const struct way *way) {
    pthread_t thread;
    CUgraph graph;

    CU(cuMemsetD8(target, 0, KIB));
    CU(cuCtxSynchronize());
    printf("%s, %s thread%s: ", mode_names[way->mode], way->thread ? "another" : "own", way->ordered ? ", in stream order" : "");
    CU(cuStreamBeginCapture(captured, way->mode));
    got = 0;
    if (way->thread) {
        start_thread(&thread, allocate, (void *)way);
        pthread_join(thread, NULL);
    } else {
        allocate((void *)way);
    }
    cuMemsetD8Async(target, VALUE, KIB, captured);
    CUresult end = cuStreamEndCapture(captured, &graph);
    printf("; the capture's end: %d, replayed right: %s\n", (int)end, yes_no(end == CUDA_SUCCESS && replays(graph)));
    if (got)
        CU(way->ordered ? cuMemFreeAsync(got, other) : cuMemFree(got));
    CU(cuCtxSynchronize());
}

static void full(const struct way *way, bool pieces) {
    CUdeviceptr block[PIECES];
    int count = 0;

    while (count < PIECES && cuMemAlloc(&block[count], PIECE) == CUDA_SUCCESS)
        count++;
    if (count == PIECES)
        die("the device is not full");
    for (int i = pieces; i < count; i += 1 + pieces)
        CU(cuMemFree(block[i]));
    printf("%s: ", pieces ? "pieces" : "all freed");
    capture(way);
    for (int i = 0; pieces && i < count; i += 2)
        CU(cuMemFree(block[i]));
}

int main(int argc, char **argv) {
    bool grow = argc > 1 && strcmp(argv[1], "grow") == 0;
    struct way way;

    context = use_primary(0);
    captured = new_stream(CU_STREAM_NON_BLOCKING);
    other = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc(&target, KIB));
    for (int i = 0; i < 12; i++) {
        CUdeviceptr held;

        way = (struct way){(CUstreamCaptureMode)(i / 4), i & 2, i & 1, CU_STREAM_CAPTURE_MODE_GLOBAL};
        if (grow && way.ordered) {
            capture(&way);
            cuMemAlloc(&held, LARGE); /* if there is as much: so that the next one has to ask again */
        }
        way.own = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; /* another thread's capture is none of its business then */
        if (!grow && (way.thread || way.mode == CU_STREAM_CAPTURE_MODE_RELAXED)) {
            full(&way, false);
            full(&way, true);
        }
    }
    return 0;
}
