/*
 * Lets each driver call fail in turn under the runtime's functions, and looks at the error that the runtime keeps for
 * cudaGetLastError: what a call returns, once, and nothing where it succeeded, whatever was tried on the way. An error that the
 * program has not read yet survives every success. Run with SIMCUDA_MEMORY=96M.
 */
#include "failures.h"
#include "runtime.h"

#define MOST 8

static void *held[MOST];
static cudaStream_t stream;
static bool earlier;        /* there is an error that the program has not read … */
static cudaError_t pending; /* … this one */

/* Before a call: no error is kept, or one of the program's own. */
static void clean(void) {
    cudaGetLastError();
    if (earlier)
        pending = cudaMemcpy(NULL, NULL, 1, (enum cudaMemcpyKind)99);
}

static cudaError_t said(cudaError_t result, const char *call) {
    cudaError_t kept = cudaGetLastError();
    if (result == cudaSuccess && earlier)
        expect(kept == pending, "%s succeeds, and the earlier error is now %s", call, cudaGetErrorName(kept));
    else
        expect(kept == result, "%s says %s, and kept is %s", call, cudaGetErrorName(result), cudaGetErrorName(kept));
    expect(cudaGetLastError() == cudaSuccess, "%s leaves an error twice", call);
    return result;
}

static void keep(cudaError_t result, void *memory, const char *call) {
    expect((result == cudaSuccess) == (memory != NULL), "%s: %s, and %s", call, cudaGetErrorName(result),
           memory ? "a pointer" : "no pointer");
    for (size_t i = 0; i < MOST && memory; i++)
        if (!held[i] || held[i] == memory) {
            held[i] = memory;
            memory = NULL;
        }
}

#define TAKE(call) (clean(), memory = NULL, result = (call), keep(said(result, #call), result ? NULL : memory, #call))

static void give_all(bool ordered) {
    for (size_t i = 0; i < MOST; i++) {
        if (!held[i])
            continue;
        clean();
        if (ordered ? said(cudaFreeAsync(held[i], stream), "cudaFreeAsync") == cudaSuccess
                    : said(cudaFree(held[i]), "cudaFree") == cudaSuccess)
            held[i] = NULL;
    }
}

static void act(void) {
    cudaError_t result;
    struct cudaPitchedPtr pitched;
    void *memory;
    size_t pitch;
    for (int round = 0; round < 2; round++) {
        TAKE(cudaMalloc(&memory, 64 * KIB));
        TAKE(cudaMalloc(&memory, 8 * MIB));
        TAKE(cudaMallocAsync(&memory, 64 * KIB, stream));
        TAKE(cudaMallocPitch(&memory, &pitch, 1000, 100));
        give_all(round);
        pitched.ptr = NULL;
        TAKE((result = cudaMalloc3D(&pitched, (struct cudaExtent){100, 7, 3}), memory = pitched.ptr, result));
        TAKE(cudaMallocManaged(&memory, 64 * KIB, cudaMemAttachGlobal));
        give_all(false);
        TAKE(cudaMalloc(&memory, 60 * MIB));
        TAKE(cudaMalloc(&memory, (size_t)1 << 40));
        give_all(false);
    }
}

static void one(const char *item, void *arg) {
    (void)arg;
    if (item && strncmp(item, "cuCtxPopCurrent", 15) == 0)
        return; /* leaves a context on the thread's stack, which the runtime has no means to take off */
    stream = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < 3; i++) {
        void *memory;
        RT(cudaMalloc(&memory, 4096)); /* so that the runtime is known, and may be passed by */
        RT(cudaFree(memory));
    }
    begin(item);
    act();
    end();
    cudaGetLastError();
    give_all(false);
    memset(held, 0, sizeof held);
    cudaDeviceReset();
    cudaGetLastError();
    expect(figure("live_blocks") <= 0, "%lld blocks live after a reset", figure("live_blocks"));
}

int main(void) {
    int failures = 0;
    find_simulated_driver();
    for (int round = 0; round < 2; round++) {
        int before = wrong;
        earlier = round;
        failures += with_each_failure(one, NULL);
        printf("%s: %s\n", earlier ? "an earlier error" : "no earlier error", wrong == before ? "right" : "wrong");
    }
    fprintf(stderr, "failures: %d\n", failures);
    return wrong != 0;
}
