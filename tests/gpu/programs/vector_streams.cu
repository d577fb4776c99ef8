// vector_streams.cu — an ordinary workload: two threads, each with four streams and the default stream, allocate
// in a loop around kernels with cudaMalloc and cudaMallocAsync, and free at once what the kernels still use.
// Prints one checksum per thread and stream; integer sums, so every correct run prints the same.

#include "check.cuh"

#include <cstring>
#include <thread>

enum { THREADS = 2, STREAMS = 5, ROUNDS = 1500, BLOCK = 256 };

__global__ static void fill(uint32_t *v, uint32_t n, uint32_t seed) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v[i] = (seed + i) * 2654435761u;
}

__global__ static void mix(uint32_t *out, const uint32_t *a, const uint32_t *b, uint32_t n) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = a[i] ^ (b[n - 1 - i] >> 3);
}

__global__ static void fold(const uint32_t *v, uint32_t n, unsigned long long *sum) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(sum, (unsigned long long)v[i]);
}

static void make_streams(cudaStream_t *streams) {
    CHECK(cudaStreamCreate(&streams[0]));
    CHECK(cudaStreamCreate(&streams[1]));
    CHECK(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&streams[3], cudaStreamNonBlocking));
    streams[4] = 0;
}

// One round: two inputs and a result, one of them stream-ordered, the result freed in either way.
static void one_round(cudaStream_t stream, uint32_t seed, uint32_t n, bool async_result, unsigned long long *sum) {
    size_t bytes = n * sizeof(uint32_t);
    uint32_t *a, *b, *result;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMallocAsync(&b, bytes, stream));
    if (async_result)
        CHECK(cudaMallocAsync(&result, bytes, stream));
    else
        CHECK(cudaMalloc(&result, bytes));
    fill<<<64, BLOCK, 0, stream>>>(a, n, seed);
    fill<<<64, BLOCK, 0, stream>>>(b, n, ~seed);
    mix<<<64, BLOCK, 0, stream>>>(result, a, b, n);
    CHECK(cudaFree(a));
    CHECK(cudaFreeAsync(b, stream));
    fold<<<64, BLOCK, 0, stream>>>(result, n, sum);
    CHECK(cudaGetLastError());
    if (seed % 3 != 0) {
        CHECK(cudaFreeAsync(result, stream));
        return;
    }
    // cudaFree of stream-ordered memory does not wait, so the program has to.
    if (async_result)
        CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(result));
}

static void work(int thread, unsigned long long *sums) {
    cudaStream_t streams[STREAMS];
    make_streams(streams);
    unsigned long long *device_sums;
    CHECK(cudaMalloc(&device_sums, STREAMS * sizeof *device_sums));
    CHECK(cudaMemset(device_sums, 0, STREAMS * sizeof *device_sums));
    CHECK(cudaDeviceSynchronize());

    uint32_t random = 12345u + (uint32_t)thread;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t seed = next_random(&random);
        // Mostly small, now and then megabytes, as real programs have it.
        uint32_t n = 1 + seed % (round % 8 == 0 ? 2000000 : 20000);
        one_round(streams[round % STREAMS], seed, n, round % 2 == 0, &device_sums[round % STREAMS]);
    }

    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(sums, device_sums, STREAMS * sizeof *sums, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device_sums));
    for (int i = 0; i < STREAMS - 1; i++)
        CHECK(cudaStreamDestroy(streams[i]));
}

int main() {
    unsigned long long sums[THREADS][STREAMS];
    std::thread workers[THREADS];
    for (int t = 0; t < THREADS; t++)
        workers[t] = std::thread(work, t, sums[t]);
    for (int t = 0; t < THREADS; t++)
        workers[t].join();
    for (int t = 0; t < THREADS; t++)
        for (int s = 0; s < STREAMS; s++)
            printf("thread %d stream %d: %016llx\n", t, s, sums[t][s]);
    return 0;
}
