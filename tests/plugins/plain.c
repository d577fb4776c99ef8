/*
 * plain.c: the smallest allocator library in PyTorch's form, as its documentation has it: the runtime, once more. It leaves its
 * device current, as such libraries do. With -DPOOLED its memory comes from the device's memory pool, which CUDA IPC does not
 * share.
 */
#include <cuda_runtime_api.h>

void *my_malloc(size_t size, int device, cudaStream_t stream);
void my_free(void *pointer, size_t size, int device, cudaStream_t stream);

void *my_malloc(size_t size, int device, cudaStream_t stream) {
    void *pointer = NULL;

    (void)stream;
    cudaSetDevice(device);
#ifdef POOLED
    if (cudaMallocAsync(&pointer, size, 0) != cudaSuccess)
#else
    if (cudaMalloc(&pointer, size) != cudaSuccess)
#endif
        cudaGetLastError(); /* it is not the program's */
    return pointer;
}

void my_free(void *pointer, size_t size, int device, cudaStream_t stream) {
    (void)size, (void)stream;
    cudaSetDevice(device);
    cudaFree(pointer);
}
