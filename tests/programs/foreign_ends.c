/*
 * Memory of one context, freed in the order of another context's streams that end before their work can be watched: something
 * captures, and the stream is destroyed meanwhile, or is the default one of a thread that ends. Natively such memory is there
 * again once that stream has got so far. All rounds together ask for more than the device has (SIMCUDA_MEMORY=322M). With an
 * argument the other context is another device's.
 */
#include "driver.h"

#define SIZE (8 * MIB)
#define ROUNDS 60

static CUcontext own, other;
static CUdeviceptr memory;
static CUstream captured;
static CUgraph graph;

static void begin(void) {
    CU(cuCtxSetCurrent(own));
    CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void end(void) {
    CU(cuCtxSetCurrent(own));
    CU(cuStreamEndCapture(captured, &graph));
    CU(cuGraphDestroy(graph));
}

static void freed_on(CUstream stream) {
    CU(cuCtxSetCurrent(other));
    CU(cuMemFreeAsync(memory, stream));
    CU(cuStreamSynchronize(stream));
}

static void on_a_destroyed_stream(void) {
    CU(cuCtxSetCurrent(other));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    freed_on(stream);
    CU(cuStreamDestroy(stream));
}

static void *in_thread(void *unused) {
    freed_on(CU_STREAM_PER_THREAD);
    return unused;
}

static void in_a_thread_that_ends(void) {
    pthread_t thread;
    start_thread(&thread, in_thread, NULL);
    pthread_join(thread, NULL);
}

/* `whole`: one capture around all; else one around each free. */
static void rounds(const char *what, void (*freed)(void), bool whole) {
    int failed = 0;
    if (whole)
        begin();
    for (int i = 0; i < ROUNDS; i++) {
        CU(cuCtxSetCurrent(own));
        if (cuMemAlloc(&memory, SIZE) != CUDA_SUCCESS) {
            failed++;
            continue;
        }
        if (!whole)
            begin();
        freed();
        if (!whole)
            end();
        CU(cuCtxSetCurrent(own));
    }
    if (whole)
        end();
    printf("freed %s, %s: failed %d\n", what, whole ? "all in one capture" : "each in a capture", failed);
}

int main(int argc, char **argv) {
    (void)argv;
    other = argc > 1 ? use_primary(1) : NULL;
    own = use_primary(0);
    captured = new_stream(CU_STREAM_NON_BLOCKING);
    if (!other)
        CU(cuCtxCreate(&other, NULL, 0, 0));
    for (int whole = 0; whole < 2; whole++) {
        rounds("on a stream that is destroyed", on_a_destroyed_stream, whole);
        rounds("in a thread that ends", in_a_thread_that_ends, whole);
    }
    return 0;
}
