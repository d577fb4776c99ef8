/*
 * Takes every kind of device memory until there is no more: each ends with out of memory and nothing worse, what was taken can be
 * freed, and then there is memory again. An argument names a kind to leave out. Run with SIMCUDA_MEMORY=256M.
 */
#include "runtime.h"

#define PIECE (8 * MIB)
#define MOST 4096

static cudaStream_t stream;
static void *pieces[MOST];

static cudaError_t take_malloc(void **memory) {
    return cudaMalloc(memory, PIECE);
}

static cudaError_t take_small(void **memory) {
    return cudaMalloc(memory, 100 * KIB);
}

static cudaError_t take_async(void **memory) {
    return cudaMallocAsync(memory, PIECE, stream);
}

static cudaError_t take_from_pool(void **memory) {
    cudaMemPool_t pool;
    cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, 0);
    return error ? error : cudaMallocFromPoolAsync(memory, PIECE, pool, stream);
}

static cudaError_t take_pitch(void **memory) {
    size_t pitch;
    return cudaMallocPitch(memory, &pitch, 8 * KIB, KIB);
}

static cudaError_t take_3d(void **memory) {
    struct cudaPitchedPtr pitched;
    cudaError_t error = cudaMalloc3D(&pitched, (struct cudaExtent){8 * KIB, 32, 32});
    *memory = pitched.ptr;
    return error;
}

static const struct {
    const char *name;
    cudaError_t (*take)(void **memory);
    bool ordered;
} kinds[] = {
    {"malloc", take_malloc, false},      {"small", take_small, false}, {"async", take_async, true},
    {"from pool", take_from_pool, true}, {"pitch", take_pitch, false}, {"3d", take_3d, false},
};

int main(void) {
    stream = new_stream(cudaStreamNonBlocking);
    for (int round = 0; round < 2; round++) {
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            cudaError_t error = cudaSuccess, freed = cudaSuccess;
            size_t count = 0;
            while (count < MOST && (error = kinds[k].take(&pieces[count])) == cudaSuccess)
                count++;
            for (size_t i = 0; i < count; i++) {
                cudaError_t one = kinds[k].ordered ? cudaFreeAsync(pieces[i], stream) : cudaFree(pieces[i]);
                freed = one ? one : freed;
            }
            RT(cudaDeviceSynchronize());
            printf("%s: %s, some: %s, all freed: %s, last error: %s\n", kinds[k].name, cudaGetErrorName(error), yes_no(count > 5),
                   cudaGetErrorName(freed), cudaGetErrorName(cudaGetLastError()));
        }
    }
    return 0;
}
