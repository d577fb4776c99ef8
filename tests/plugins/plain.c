/*
 * plain.c: the smallest allocator library in PyTorch's form, as its documentation has it: the runtime, once more. It leaves its
 * device current, as such libraries do.
 */
#include <cuda_runtime_api.h>

void *my_malloc(size_t size, int device, cudaStream_t stream);
void my_free(void *pointer, size_t size, int device, cudaStream_t stream);

void *my_malloc(size_t size, int device, cudaStream_t stream) {
    void *pointer = NULL;

    (void)stream;
    cudaSetDevice(device);
    if (cudaMalloc(&pointer, size) != cudaSuccess)
        cudaGetLastError(); /* it is not the program's */
    return pointer;
}

void my_free(void *pointer, size_t size, int device, cudaStream_t stream) {
    (void)size, (void)stream;
    cudaSetDevice(device);
    cudaFree(pointer);
}
