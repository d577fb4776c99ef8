// free_waits_for_kernel.cu — programs rely on cudaFree waiting for the kernels that use the block. A 50 ms kernel
// writes the block at its end; the block is freed at once and its size allocated again; the new owner clears it on
// a stream of its own, and it must stay cleared. Every kind of stream, and every step in another thread. The new
// owner takes several blocks, because an allocator may give the freed one out second or third.
// Prints one line; which scenario failed, and whether the address came back, is on stderr.

#include "check.cuh"

#include <functional>
#include <thread>

enum { OWNERS = 16, KERNEL_US = 50000 };

enum kind { NON_BLOCKING, BLOCKING, LEGACY, PER_THREAD, HIGH_PRIORITY };

struct scenario {
    const char *name;
    enum kind kind;
    bool launch_elsewhere, free_elsewhere, own_elsewhere;
};

static const struct scenario scenarios[] = {
    {"non-blocking stream", NON_BLOCKING, false, false, false},
    {"blocking stream", BLOCKING, false, false, false},
    {"legacy default stream", LEGACY, false, false, false},
    {"per-thread default stream", PER_THREAD, false, false, false},
    {"high-priority stream", HIGH_PRIORITY, false, false, false},
    {"per-thread default stream of an exited thread", PER_THREAD, true, false, false},
    {"freed by another thread", NON_BLOCKING, false, true, false},
    {"new owner in another thread", NON_BLOCKING, false, false, true},
};

__global__ static void late_write(uint32_t *v, size_t n) {
    hold_us(KERNEL_US);
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v[i] = 0xffffffffu;
}

__global__ static void count_nonzero(const uint32_t *v, size_t n, unsigned long long *count) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (v[i] != 0)
            atomicAdd(count, 1ull);
}

static cudaStream_t make_stream(enum kind kind) {
    cudaStream_t stream;
    int lowest, highest;
    switch (kind) {
    case NON_BLOCKING:
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return stream;
    case BLOCKING:
        CHECK(cudaStreamCreate(&stream));
        return stream;
    case HIGH_PRIORITY:
        CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
        CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
        return stream;
    case PER_THREAD:
        return cudaStreamPerThread;
    default:
        return cudaStreamLegacy;
    }
}

static void step(bool elsewhere, const std::function<void()> &work) {
    if (elsewhere)
        std::thread(work).join();
    else
        work();
}

// Returns how many words of the new owner's blocks were overwritten after it cleared them.
static unsigned long long run(const struct scenario *scenario, size_t bytes, cudaStream_t owner, unsigned long long *count) {
    uint32_t *block, *owned[OWNERS];
    size_t words = bytes / sizeof *block;
    cudaStream_t stream = make_stream(scenario->kind);
    bool same_address = false;

    CHECK(cudaMemset(count, 0, sizeof *count));
    CHECK(cudaMalloc(&block, bytes));
    CHECK(cudaDeviceSynchronize());
    step(scenario->launch_elsewhere, [&] {
        late_write<<<32, 256, 0, stream>>>(block, words);
        CHECK(cudaGetLastError());
    });
    step(scenario->free_elsewhere, [&] { CHECK(cudaFree(block)); });
    step(scenario->own_elsewhere, [&] {
        for (uint32_t *&own : owned) {
            CHECK(cudaMalloc(&own, bytes));
            CHECK(cudaMemsetAsync(own, 0, bytes, owner));
            same_address |= own == block;
        }
    });
    CHECK(cudaDeviceSynchronize());
    for (uint32_t *own : owned) {
        count_nonzero<<<32, 256, 0, owner>>>(own, words, count);
        CHECK(cudaGetLastError());
        CHECK(cudaFree(own));
    }
    unsigned long long wrong;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&wrong, count, sizeof wrong, cudaMemcpyDeviceToHost));
    if (stream != cudaStreamPerThread && stream != cudaStreamLegacy)
        CHECK(cudaStreamDestroy(stream));
    fprintf(stderr, "%s, %zu bytes: address came back: %s, wrong words: %llu\n", scenario->name, bytes,
            same_address ? "yes" : "no", wrong);
    return wrong;
}

int main() {
    static const size_t sizes[] = {64u << 10, 8u << 20};
    unsigned long long *count, wrong = 0;
    cudaStream_t owner;
    CHECK(cudaStreamCreateWithFlags(&owner, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&count, sizeof *count));
    for (size_t size : sizes)
        for (const struct scenario &scenario : scenarios)
            wrong += run(&scenario, size, owner, count);
    CHECK(cudaFree(count));
    CHECK(cudaStreamDestroy(owner));
    printf("old kernel done before new owner's write: %s\n", wrong == 0 ? "yes" : "no");
    return 0;
}
