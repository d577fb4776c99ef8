/*
 * Four allocations of different sizes, filled, compared and freed; says what each call returned. Then one that nobody can serve,
 * and one more.
 */
#include "runtime.h"

#define COUNT 4

static const char *said(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorName(error);
}

int main(void) {
    void *memory[COUNT], *last;
    size_t size[COUNT] = {1000, 2000, 3000, 4000};

    for (int i = 0; i < COUNT; i++) {
        printf("malloc %d: %s\n", i + 1, said(cudaMalloc(&memory[i], size[i])));
        if (memory[i])
            RT(cudaMemset(memory[i], i + 1, size[i]));
    }
    for (int i = 0; i < COUNT; i++)
        if (memory[i])
            printf("wrong bytes %d: %zu\n", i + 1, wrong_on_device(memory[i], i + 1, size[i]));
    for (int i = 0; i < COUNT; i++)
        printf("free %d: %s\n", i + 1, said(cudaFree(memory[i])));
    printf("too large: %s\n", said(cudaMalloc(&last, (size_t)1 << 50)));
    printf("one more: %s\n", said(cudaMalloc(&last, 5000)));
    printf("its free: %s\n", said(cudaFree(last)));
    return 0;
}
