/*
 * Resets the device with live blocks, freed (perhaps cached) ones and pending work, and goes on. What the old context owned is
 * gone; its pointers must be refused, never cached or handed out.
 */
#include "runtime.h"

#define SIZE (256 * KIB)

static const char *said(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorName(error);
}

static void one_life(int life) {
    void *live, *freed[8], *ordered, *memory;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    RT(cudaMalloc(&live, SIZE));
    for (size_t i = 0; i < COUNT_OF(freed); i++)
        RT(cudaMalloc(&freed[i], SIZE));
    RT(cudaMallocAsync(&ordered, SIZE, stream));
    slow_fill(live, life, SIZE, stream, KERNEL_MS / 2);
    for (size_t i = 0; i < COUNT_OF(freed); i++)
        RT(cudaFree(freed[i]));
    RT(cudaFreeAsync(ordered, stream));
    RT(cudaDeviceReset());
    printf("free of a pointer from before the reset: %s\n", said(cudaFree(live)));
    for (size_t i = 0; i < COUNT_OF(freed); i++) {
        RT(cudaMalloc(&memory, SIZE));
        RT(cudaMemset(memory, 0x60 + life, SIZE));
        size_t wrong = wrong_on_device(memory, 0x60 + life, SIZE);
        if (wrong)
            printf("wrong bytes after the reset: %zu\n", wrong);
        if (i % 2)
            RT(cudaFree(memory));
    }
}

int main(void) {
    for (int life = 1; life <= 3; life++)
        one_life(life);
    RT(cudaDeviceReset());
    printf("lived three times\n");
    return 0;
}
