/*
 * One thread captures graph after graph while others allocate, work and free all the time, natively allowed in the modes used
 * here.
 *
 * No capture may be spoiled, and every replay must do what was captured. Argument: milliseconds to run.
 */
#include "runtime.h"

#define CHURNERS 3
#define SIZE (64 * KIB)

static bool stop;

static bool stopped(void) {
    return __atomic_load_n(&stop, __ATOMIC_ACQUIRE);
}

static void *churn(void *argument) {
    uint32_t state = 77 + (uint32_t)(intptr_t)argument;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    for (unsigned round = 1; !stopped(); round++) {
        void *memory;
        size_t size = 1 + next_random(&state) % SIZE;
        if (next_random(&state) % 2) {
            RT(cudaMalloc(&memory, size));
            RT(cudaMemsetAsync(memory, 1, size, stream));
            RT(cudaFree(memory));
        } else {
            RT(cudaMallocAsync(&memory, size, stream));
            RT(cudaMemsetAsync(memory, 2, size, stream));
            RT(cudaFreeAsync(memory, stream));
        }
        if (round % 256 == 0) /* a free need not wait, so nothing else bounds what is queued here */
            RT(cudaStreamSynchronize(stream));
    }
    RT(cudaStreamSynchronize(stream));
    RT(cudaStreamDestroy(stream));
    return NULL;
}

/* Whether the capture came to a usable graph. */
static bool capture(cudaStream_t stream, enum cudaStreamCaptureMode mode, void *target, int value) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    unsigned char seen[256];
    if (cudaStreamBeginCapture(stream, mode) != cudaSuccess)
        return false;
    cudaError_t queued = cudaMemsetAsync(target, value, SIZE, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || queued != cudaSuccess)
        return false;
    RT(cudaGraphInstantiate(&executable, graph, 0));
    RT(cudaGraphLaunch(executable, stream));
    RT(cudaMemcpyAsync(seen, target, sizeof seen, cudaMemcpyDeviceToHost, stream));
    RT(cudaStreamSynchronize(stream));
    RT(cudaGraphExecDestroy(executable));
    RT(cudaGraphDestroy(graph));
    return wrong_bytes(seen, value, sizeof seen) == 0;
}

int main(int argc, char **argv) {
    double end = now_ms() + (argc > 1 ? atoi(argv[1]) : 600);
    pthread_t threads[CHURNERS];
    void *target;
    int bad = 0, rounds = 0;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    RT(cudaMalloc(&target, SIZE));
    for (int i = 0; i < CHURNERS; i++)
        start_thread(&threads[i], churn, (void *)(intptr_t)i);
    for (; now_ms() < end || rounds < 4; rounds++) {
        enum cudaStreamCaptureMode mode = rounds % 2 ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
        bad += !capture(stream, mode, target, rounds % 250 + 1);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    printf("captures spoiled: %d\n", bad);
    return 0;
}
