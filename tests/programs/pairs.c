/*
 * Every kind of allocation freed in every way that there is: what the free says, what a second one says, and that the memory is
 * then gone from the driver, once. An argument chooses one allocation; "graph" alone: memory that a graph's launch allocates.
 */
#include "runtime.h"
#include <cuda.h>
#include <dlfcn.h>

#define SIZE ((size_t)1 << 20)

static cudaStream_t stream;
static CUresult (*free_now)(CUdeviceptr), (*free_async)(CUdeviceptr, CUstream);

static void *take_malloc(void) {
    void *memory;
    RT(cudaMalloc(&memory, SIZE));
    return memory;
}

static void *take_managed(void) {
    void *memory;
    RT(cudaMallocManaged(&memory, SIZE, cudaMemAttachGlobal));
    return memory;
}

static void *take_async(void) {
    void *memory;
    RT(cudaMallocAsync(&memory, SIZE, stream));
    return memory;
}

static void *take_from_pool(void) {
    void *memory;
    cudaMemPool_t pool;
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT(cudaMallocFromPoolAsync(&memory, SIZE, pool, stream));
    return memory;
}

static void *take_pitch(void) {
    void *memory;
    size_t pitch;
    RT(cudaMallocPitch(&memory, &pitch, 1000, 1000));
    return memory;
}

/* The graph and what was made of it stay: their memory is the program's until it is freed. */
static void *take_graph(void) {
    void *memory;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    RT(cudaMallocAsync(&memory, SIZE, stream));
    RT(cudaMemsetAsync(memory, 5, SIZE, stream));
    RT(cudaStreamEndCapture(stream, &graph));
    RT(cudaGraphInstantiate(&exec, graph, 0));
    RT(cudaGraphLaunch(exec, stream));
    printf("wrong bytes: %zu; ", wrong_on_device(memory, 5, SIZE));
    return memory;
}

static int by_cudaFree(void *memory) {
    return (int)cudaFree(memory);
}

static int by_cudaFreeAsync(void *memory) {
    return (int)cudaFreeAsync(memory, stream);
}

static int by_cuMemFree(void *memory) {
    return (int)free_now((CUdeviceptr)memory);
}

static int by_cuMemFreeAsync(void *memory) {
    return (int)free_async((CUdeviceptr)memory, (CUstream)stream);
}

static const struct {
    const char *name;
    void *(*take)(void);
} allocations[] = {
    {"cudaMalloc", take_malloc},     {"cudaMallocManaged", take_managed},
    {"cudaMallocAsync", take_async}, {"cudaMallocFromPoolAsync", take_from_pool},
    {"cudaMallocPitch", take_pitch}, {"graph", take_graph},
};

static const struct {
    const char *name;
    int (*give)(void *memory);
} frees[] = {
    {"cudaFree", by_cudaFree},
    {"cudaFreeAsync", by_cudaFreeAsync},
    {"cuMemFree", by_cuMemFree},
    {"cuMemFreeAsync", by_cuMemFreeAsync},
};

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!driver)
        die("no driver");
    *(void **)&free_now = dlsym(driver, "cuMemFree_v2");
    *(void **)&free_async = dlsym(driver, "cuMemFreeAsync");
    stream = new_stream(cudaStreamNonBlocking);
    for (size_t a = 0; a < COUNT_OF(allocations); a++) {
        if (argc > 1 && strcmp(argv[1], allocations[a].name) != 0)
            continue;
        for (size_t f = 0; f < COUNT_OF(frees); f++) {
            void *memory = allocations[a].take();
            int first, second, last;
            RT(cudaStreamSynchronize(stream));
            first = frees[f].give(memory);
            second = frees[f].give(memory);
            last = (int)cudaFree(memory); /* nothing is left to free, unless both were refused */
            RT(cudaDeviceSynchronize());
            printf("%s, %s: %d, again %d, then cudaFree %d\n", allocations[a].name, frees[f].name, first, second, last);
            cudaGetLastError();
        }
    }
    printf("expect live_blocks=0 live_bytes=0\n");
    return 0;
}
