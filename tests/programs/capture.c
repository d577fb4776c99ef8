/*
 * Captures a stream into a graph while this or another thread allocates and frees, and says what became of capture and graph.
 *
 * The driver forbids some calls during a capture and spoils the capture when they come; a layer underneath must not add any.
 * Argument: a situation, or "all"; each is run in the three capture modes.
 */
#include "runtime.h"
#include "capture_modes.h"

#define SIZE (64 * KIB)
#define VALUE 0x77

static cudaStream_t captured, other;

static const char *plain(cudaError_t error) {
    if (error != cudaSuccess)
        cudaGetLastError();
    return cudaGetErrorName(error);
}

static void nothing(char *said, size_t room) {
    snprintf(said, room, "-");
}

static void sync_pair(char *said, size_t room) {
    void *memory = NULL;
    const char *taken = plain(cudaMalloc(&memory, SIZE));
    const char *given = memory ? plain(cudaFree(memory)) : "-";
    snprintf(said, room, "%s %s", taken, given);
}

static void async_pair(char *said, size_t room) {
    void *memory = NULL;
    const char *taken = plain(cudaMallocAsync(&memory, SIZE, other));
    const char *given = memory ? plain(cudaFreeAsync(memory, other)) : "-";
    snprintf(said, room, "%s %s", taken, given);
}

/* On the captured stream memory is part of the graph, taken and given back at each launch. */
static void graph_pair(char *said, size_t room) {
    void *memory = NULL;
    const char *taken = plain(cudaMallocAsync(&memory, SIZE, captured));
    const char *filled = plain(cudaMemsetAsync(memory, 1, SIZE, captured));
    const char *given = memory ? plain(cudaFreeAsync(memory, captured)) : "-";
    snprintf(said, room, "%s %s %s", taken, filled, given);
}

/* A stream that has taken part, joined again and is not needed any more. */
static void side_stream(char *said, size_t room) {
    cudaEvent_t fork, join;
    cudaStream_t side = new_stream(cudaStreamNonBlocking);
    RT(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    RT(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    RT(cudaEventRecord(fork, captured));
    RT(cudaStreamWaitEvent(side, fork, 0));
    RT(cudaEventRecord(join, side));
    RT(cudaStreamWaitEvent(captured, join, 0));
    snprintf(said, room, "%s", plain(cudaStreamDestroy(side)));
    RT(cudaEventDestroy(fork));
    RT(cudaEventDestroy(join));
}

static void *before_capture;

static void free_old(char *said, size_t room) {
    snprintf(said, room, "%s", plain(cudaFree(before_capture)));
}

static void free_old_async(char *said, size_t room) {
    snprintf(said, room, "%s", plain(cudaFreeAsync(before_capture, other)));
}

static const struct situation {
    const char *name;
    void (*act)(char *, size_t);
    bool in_thread;
    bool keeps_old; /* act does not free before_capture */
} situations[] = {
    {"quiet", nothing, false, true},
    {"own-malloc", sync_pair, false, true},
    {"own-async", async_pair, false, true},
    {"own-free", free_old, false, false},
    {"thread-malloc", sync_pair, true, true},
    {"thread-async", async_pair, true, true},
    {"graph-memory", graph_pair, false, true},
    {"side-stream", side_stream, false, true},
    {"thread-free", free_old, true, false},
    {"thread-free-async", free_old_async, true, false},
};

struct errand {
    const struct situation *situation;
    char said[128];
};

static void *run_errand(void *argument) {
    struct errand *errand = argument;
    errand->situation->act(errand->said, sizeof errand->said);
    return NULL;
}

/* Leaves freed blocks with work pending behind: what a cache would be tempted to fence during the capture. */
static void leave_pending_frees(void) {
    for (int i = 0; i < 4; i++) {
        void *memory;
        RT(cudaMalloc(&memory, SIZE));
        slow_fill(memory, 1, SIZE, other, 3);
        RT(cudaFree(memory));
    }
}

static void replay(cudaGraph_t graph, void *target) {
    cudaGraphExec_t executable;
    void *bystanders[4];
    size_t wrong = 0;
    /* Blocks that came into being after the capture: no launch may write them. */
    for (size_t i = 0; i < COUNT_OF(bystanders); i++) {
        RT(i % 2 ? cudaMalloc(&bystanders[i], SIZE) : cudaMallocAsync(&bystanders[i], SIZE, captured));
        RT(cudaStreamSynchronize(captured));
        RT(cudaMemset(bystanders[i], 0x5b, SIZE));
    }
    RT(cudaGraphInstantiate(&executable, graph, 0));
    RT(cudaGraphLaunch(executable, captured));
    RT(cudaStreamSynchronize(captured));
    wrong += wrong_on_device(target, VALUE, SIZE);
    for (size_t i = 0; i < COUNT_OF(bystanders); i++) {
        wrong += wrong_on_device(bystanders[i], 0x5b, SIZE);
        RT(cudaFree(bystanders[i]));
    }
    printf(" replay %s\n", wrong ? "wrong" : "right");
    RT(cudaGraphExecDestroy(executable));
    RT(cudaGraphDestroy(graph));
}

static void capture_once(const struct situation *situation, size_t mode) {
    struct errand errand = {.situation = situation};
    void *target;
    cudaGraph_t graph = NULL;
    RT(cudaMalloc(&target, SIZE));
    RT(cudaMalloc(&before_capture, SIZE));
    leave_pending_frees();
    RT(cudaStreamBeginCapture(captured, modes[mode].mode));
    if (situation->in_thread) {
        pthread_t thread;
        start_thread(&thread, run_errand, &errand);
        pthread_join(thread, NULL);
    } else {
        run_errand(&errand);
    }
    cudaMemsetAsync(target, VALUE, SIZE, captured);
    cudaError_t end = cudaStreamEndCapture(captured, &graph);
    printf("%s %s: %s; capture %s;", situation->name, modes[mode].name, errand.said, plain(end));
    if (end == cudaSuccess)
        replay(graph, target);
    else
        printf(" spoiled\n");
    cudaGetLastError();
    RT(cudaDeviceSynchronize());
    if (situation->keeps_old)
        RT(cudaFree(before_capture));
    else if (cudaFree(before_capture) != cudaSuccess)
        cudaGetLastError(); /* it went during the capture */
    RT(cudaFree(target));
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "all";
    captured = new_stream(cudaStreamNonBlocking);
    other = new_stream(cudaStreamNonBlocking);
    for (size_t s = 0; s < COUNT_OF(situations); s++)
        if (strcmp(wanted, "all") == 0 || strcmp(wanted, situations[s].name) == 0)
            for (size_t m = 0; m < COUNT_OF(modes); m++)
                capture_once(&situations[s], m);
    return 0;
}
