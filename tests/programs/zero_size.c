/*
 * Size zero through every allocating call of the runtime, the pointer set to a mark before: what comes back is CUDA's business
 * and must come back unchanged. Then the results are freed, and a hundred zero-size blocks at once.
 */
#include "runtime.h"

#define MARK ((void *)0x7)

static const char *pointer(const void *memory) {
    return !memory ? "NULL" : memory == MARK ? "unchanged" : "set";
}

static void show(const char *call, cudaError_t error, void *memory) {
    printf("%s: %s, pointer %s", call, cudaGetErrorName(error), pointer(memory));
    printf(", pending %s", cudaGetErrorName(cudaGetLastError()));
    if (memory != MARK)
        printf(", free %s", cudaGetErrorName(cudaFree(memory)));
    printf(", pending %s\n", cudaGetErrorName(cudaGetLastError()));
}

int main(void) {
    void *memory;
    size_t pitch = 7;
    cudaMemPool_t pool;
    struct cudaPitchedPtr pitched = {.ptr = MARK};
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaError_t error;
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));

    for (int round = 0; round < 2; round++) {
        error = cudaMalloc((memory = MARK, &memory), 0);
        show("cudaMalloc", error, memory);
        error = cudaMallocAsync((memory = MARK, &memory), 0, stream);
        show("cudaMallocAsync", error, memory);
        error = cudaMallocAsync((memory = MARK, &memory), 0, 0);
        show("cudaMallocAsync default stream", error, memory);
        error = cudaMallocFromPoolAsync((memory = MARK, &memory), 0, pool, stream);
        show("cudaMallocFromPoolAsync", error, memory);
        error = cudaMallocManaged((memory = MARK, &memory), 0, cudaMemAttachGlobal);
        show("cudaMallocManaged", error, memory);
        error = cudaMallocPitch((memory = MARK, &memory), &pitch, 0, 7);
        show("cudaMallocPitch width", error, memory);
        error = cudaMallocPitch((memory = MARK, &memory), &pitch, 100, 0);
        show("cudaMallocPitch height", error, memory);
        pitched.ptr = MARK;
        error = cudaMalloc3D(&pitched, (struct cudaExtent){0, 7, 3});
        show("cudaMalloc3D", error, pitched.ptr);
        show("cudaMalloc(NULL)", cudaMalloc(NULL, 4096), MARK);
        show("cudaMalloc(NULL, 0)", cudaMalloc(NULL, 0), MARK);
        show("cudaMallocAsync(NULL)", cudaMallocAsync(NULL, 4096, stream), MARK);
        printf("cudaFree(NULL): %s, cudaFreeAsync(NULL): %s\n", cudaGetErrorName(cudaFree(NULL)),
               cudaGetErrorName(cudaFreeAsync(NULL, stream)));
    }
    for (int i = 0; i < 100; i++)
        RT(cudaMalloc(&memory, 0));
    printf("a hundred more: pointer %s\n", pointer(memory));
    printf("expect allocations=0 frees=0 live_blocks=0\n");
    return 0;
}
