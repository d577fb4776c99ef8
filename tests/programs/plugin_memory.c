/*
 * What a library keeps. reset: blocks are freed, the device is reset, and blocks of the same sizes must be memory again. busy: most of
 * the device's memory is freed in the order of a stream that still works; then one allocation needs it.
 */
#include "runtime.h"

static void reset(void) {
    for (int round = 1; round <= 3; round++) {
        void *block[4], *small;
        size_t wrong = 0;
        for (int i = 0; i < 4; i++) {
            RT(cudaMalloc(&block[i], MIB));
            RT(cudaMemset(block[i], round * 16 + i, MIB));
        }
        for (int i = 0; i < 4; i++)
            wrong += wrong_on_device(block[i], round * 16 + i, MIB);
        for (int i = 0; i < 4; i++)
            RT(cudaFree(block[i]));
        RT(cudaDeviceSynchronize());
        for (int i = 0; i < 20; i++) { /* by now the library has them back */
            RT(cudaMalloc(&small, 1));
            RT(cudaFree(small));
        }
        printf("life %d: wrong bytes %zu\n", round, wrong);
        RT(cudaDeviceReset());
    }
}

static void busy(void) {
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    void *block[8], *large;
    size_t left, total;
    RT(cudaMemGetInfo(&left, &total));
    size_t size = left / 10 / MIB * MIB;
    for (int i = 0; i < 8; i++)
        RT(cudaMallocAsync(&block[i], size, stream));
    slow_fill(block[0], 1, size, stream, 100);
    for (int i = 0; i < 8; i++)
        RT(cudaFreeAsync(block[i], stream));
    printf("large: %s\n", cudaGetErrorName(cudaMalloc(&large, 6 * size)));
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "busy") == 0)
        busy();
    else
        reset();
    return 0;
}
