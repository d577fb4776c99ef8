/*
 * Sizes near the end of the number range, and products that pass it: each is out of memory or invalid as CUDA says, never a small
 * block with a large promise. A small allocation afterwards is sound.
 */
#include "runtime.h"

static const size_t from_the_top[] = {0, 1, 255, 256, 510, 511, 512, 4095, (size_t)1 << 21};

static void show(const char *call, size_t size, cudaError_t error, void *memory) {
    printf("%s %#zx: %s, pointer %s, pending %s %s\n", call, size, cudaGetErrorName(error),
           !memory                 ? "NULL"
           : memory == (void *)0x7 ? "unchanged"
                                   : "set",
           cudaGetErrorName(cudaGetLastError()), cudaGetErrorName(cudaGetLastError()));
}

static void ask(size_t size) {
    void *memory = (void *)0x7;
    cudaError_t error = cudaMalloc(&memory, size);
    show("cudaMalloc", size, error, memory);
    memory = (void *)0x7;
    error = cudaMallocAsync(&memory, size, 0);
    show("cudaMallocAsync", size, error, memory);
}

int main(void) {
    void *first, *second, *memory = (void *)0x7;
    size_t pitch = 7;
    struct cudaPitchedPtr pitched = {.ptr = (void *)0x7};
    RT(cudaMalloc(&first, 100));
    for (size_t i = 0; i < COUNT_OF(from_the_top); i++)
        ask(SIZE_MAX - from_the_top[i]);
    ask((size_t)1 << 63);
    ask((size_t)1 << 60);
    ask((size_t)1 << 48);
    cudaError_t error = cudaMallocPitch(&memory, &pitch, (size_t)1 << 33, (size_t)1 << 33);
    show("cudaMallocPitch", (size_t)1 << 33, error, memory);
    for (size_t i = 0; i < COUNT_OF(from_the_top); i++) { /* widths that no pitch can hold */
        memory = (void *)0x7;
        error = cudaMallocPitch(&memory, &pitch, SIZE_MAX - from_the_top[i], 1);
        show("cudaMallocPitch width", SIZE_MAX - from_the_top[i], error, memory);
    }
    error = cudaMalloc3D(&pitched, (struct cudaExtent){(size_t)1 << 22, (size_t)1 << 22, (size_t)1 << 22});
    show("cudaMalloc3D", (size_t)1 << 22, error, pitched.ptr);
    RT(cudaMalloc(&second, 100));
    RT(cudaMemset(first, 1, 100));
    RT(cudaMemset(second, 2, 100));
    printf("small ones apart: %s\n", yes_no(first != second && !wrong_on_device(first, 1, 100)));
    RT(cudaFree(first));
    RT(cudaFree(second));
    printf("expect allocations=2 frees=2 live_blocks=0 live_bytes=0\n");
    return 0;
}
