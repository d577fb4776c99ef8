/*
 * Writes every byte value to stdout around all kinds of CUDA calls, failing ones too: what a pipe behind the program must receive
 * unchanged.
 */
#include "runtime.h"

int main(void) {
    void *memory, *ordered;
    for (int i = 0; i < 256; i++)
        putchar(i);
    RT(cudaMalloc(&memory, 1 * MIB));
    RT(cudaMallocAsync(&ordered, 1 * MIB, 0));
    cudaFree((void *)0x1234);
    cudaMalloc(&(void *){NULL}, (size_t)1 << 50);
    cudaGetLastError();
    for (int i = 255; i >= 0; i--)
        putchar(i);
    RT(cudaFreeAsync(ordered, 0));
    RT(cudaFree(memory));
    RT(cudaDeviceSynchronize());
    return fflush(stdout) != 0;
}
