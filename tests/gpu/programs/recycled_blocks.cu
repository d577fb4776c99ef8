// recycled_blocks.cu — no block is ever given to a new owner while the old owner's kernels still use it.
// Two threads, four streams each. A block is filled by a (sometimes late) kernel on one stream; right before its
// free a kernel on that same stream compares it with its pattern; then it is freed without waiting. A block handed
// out too early shows as a wrong word with the old owner or with the new one.
// Arguments: blocks (130000), how many of them must be recycled memory (100000).

#include "check.cuh"

#include <mutex>
#include <thread>
#include <unordered_set>

enum { THREADS = 2, STREAMS = 4, LIVE = 24, CHUNK_SHIFT = 16 };

struct block {
    uint32_t *words;
    uint32_t count, seed;
    cudaStream_t stream;
};

static std::mutex seen_lock;
static std::unordered_set<uintptr_t> seen; // chunks that have belonged to a block
static long recycled;
static unsigned long long *wrong;

__global__ static void late_fill(uint32_t *v, uint32_t n, uint32_t seed, uint32_t delay_us) {
    if (delay_us)
        hold_us(delay_us);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v[i] = seed ^ i;
}

__global__ static void compare(const uint32_t *v, uint32_t n, uint32_t seed, unsigned long long *wrong) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (v[i] != (seed ^ i))
            atomicAdd(wrong, 1ull);
}

static void make_streams(cudaStream_t *streams) {
    int lowest, highest;
    CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CHECK(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&streams[2], cudaStreamNonBlocking, highest));
    CHECK(cudaStreamCreate(&streams[3]));
}

static uint32_t random_bytes(uint32_t *random) {
    uint32_t kind = next_random(random) % 20, r = next_random(random);
    if (kind == 0)
        return (1u << 20) + r % (7u << 20);
    if (kind < 6)
        return (64u << 10) + r % (960u << 10);
    return 4 + r % (64u << 10);
}

static unsigned grid_for(uint32_t count) {
    return count < 16384 ? 4 : 64;
}

// A block counts as recycled if where it starts belonged to an earlier block. Chunks rather than addresses, because an
// allocator that merges and splits hands the same memory out at ever new addresses.
static void note_owner(uintptr_t start, size_t bytes) {
    std::lock_guard<std::mutex> guard(seen_lock);
    recycled += (long)seen.count(start >> CHUNK_SHIFT);
    for (uintptr_t chunk = start >> CHUNK_SHIFT; chunk <= (start + bytes - 1) >> CHUNK_SHIFT; chunk++)
        seen.insert(chunk);
}

static void take(struct block *block, cudaStream_t stream, uint32_t *random) {
    block->count = random_bytes(random) / sizeof(uint32_t);
    block->seed = next_random(random);
    block->stream = stream;
    CHECK(cudaMalloc(&block->words, block->count * sizeof(uint32_t)));
    uint32_t delay = block->seed % 4 == 0 ? 40 : 0;
    late_fill<<<grid_for(block->count), 256, 0, stream>>>(block->words, block->count, block->seed, delay);
    CHECK(cudaGetLastError());
    note_owner((uintptr_t)block->words, block->count * sizeof(uint32_t));
}

static void drop(struct block *block) {
    compare<<<grid_for(block->count), 256, 0, block->stream>>>(block->words, block->count, block->seed, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(block->words));
    block->words = nullptr;
}

static void work(int thread, long blocks) {
    cudaStream_t streams[STREAMS];
    struct block live[LIVE] = {};
    uint32_t random = 77u + (uint32_t)thread;
    make_streams(streams);
    for (long i = 0; i < blocks; i++) {
        struct block *block = &live[next_random(&random) % LIVE];
        if (block->words)
            drop(block);
        take(block, streams[next_random(&random) % STREAMS], &random);
    }
    for (struct block &block : live)
        if (block.words)
            drop(&block);
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    long blocks = argc > 1 ? atol(argv[1]) : 130000;
    long wanted = argc > 2 ? atol(argv[2]) : 100000;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaDeviceSynchronize());

    std::thread workers[THREADS];
    for (int t = 0; t < THREADS; t++)
        workers[t] = std::thread(work, t, blocks / THREADS);
    for (std::thread &worker : workers)
        worker.join();

    unsigned long long wrong_words;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&wrong_words, wrong, sizeof wrong_words, cudaMemcpyDeviceToHost));
    fprintf(stderr, "%ld of %ld blocks were recycled memory\n", recycled, blocks);
    printf("wrong words: %llu\n", wrong_words);
    printf("recycled enough blocks: %s\n", recycled >= wanted ? "yes" : "no");
    return 0;
}
