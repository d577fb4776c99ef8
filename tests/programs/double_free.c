/*
 * Frees a block twice and allocates twice: the second free is refused with CUDA's own code, and nobody shares memory afterwards.
 */
#include "runtime.h"

static const size_t sizes[] = {1, 512, 64 * KIB, 4 * MIB};

static const char *said(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorName(error);
}

static void twice(size_t size, bool first_async, bool second_async) {
    void *memory, *next[2];
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    if (first_async)
        RT(cudaMallocAsync(&memory, size, stream));
    else
        RT(cudaMalloc(&memory, size));
    RT(first_async ? cudaFreeAsync(memory, stream) : cudaFree(memory));
    printf("%zu %s: second free %s, ", size, first_async ? "async" : "sync",
           said(second_async ? cudaFreeAsync(memory, stream) : cudaFree(memory)));
    for (int i = 0; i < 2; i++)
        RT(first_async ? cudaMallocAsync(&next[i], size, stream) : cudaMalloc(&next[i], size));
    printf("two owners differ: %s\n", yes_no(next[0] != next[1]));
    for (int i = 0; i < 2; i++)
        RT(cudaFree(next[i]));
    RT(cudaStreamDestroy(stream));
}

int main(void) {
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        twice(sizes[i], false, false);
        twice(sizes[i], false, true);
        twice(sizes[i], true, true);
        twice(sizes[i], true, false);
    }
    printf("expect allocations=48 frees=48 live_blocks=0 live_bytes=0\n");
    return 0;
}
