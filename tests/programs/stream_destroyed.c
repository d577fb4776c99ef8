/*
 * Many streams, each of which allocates, works, frees in its order and is destroyed with all of that pending; then a large
 * allocation.
 *
 * The memory of streams that are gone must come back, and no stale handle may be touched. Argument: how many streams.
 */
#include "runtime.h"

#define PIECE (1 * MIB)

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 200;
    for (int i = 0; i < count; i++) {
        void *memory;
        cudaStream_t stream = new_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
        RT(cudaMallocAsync(&memory, PIECE, stream));
        if (i % 16 == 0)
            delay(stream, 5);
        RT(cudaMemsetAsync(memory, i & 0xff, PIECE, stream));
        RT(cudaFreeAsync(memory, stream));
        RT(cudaStreamDestroy(stream));
    }
    void *large;
    RT(cudaMalloc(&large, (size_t)count * PIECE));
    RT(cudaMemset(large, 0x5a, (size_t)count * PIECE));
    printf("after %d destroyed streams: wrong bytes %zu\n", count, wrong_on_device(large, 0x5a, (size_t)count * PIECE));
    RT(cudaFree(large));
    printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
