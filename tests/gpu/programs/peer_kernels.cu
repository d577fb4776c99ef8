// peer_kernels.cu — kernels of one GPU use the other's memory, with peer access enabled before and after the memory was allocated; and a
// block that the peer still writes to is freed and allocated again. cudaFree waits for its own device, here for work that waits for the
// peer's kernel: so natively the next owner's kernel, on yet another stream of the peer, comes later. (C81)

#include "check.cuh"

enum { ROUNDS = 100, FRESH = 40 /* MiB, more than an allocator takes at once */, WORDS = 1 << 18, BLOCKS = 64 };

__global__ static void fill(uint32_t *words, uint32_t value, uint32_t hold) {
    if (hold)
        hold_us(hold);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        words[i] = value + i;
}

__global__ static void sum(const uint32_t *words, unsigned long long *total) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        atomicAdd(total, (unsigned long long)words[i]);
}

static unsigned long long expected(uint32_t value) {
    return (unsigned long long)value * WORDS + (unsigned long long)WORDS * (WORDS - 1) / 2;
}

static int wrong_words(const uint32_t *memory, uint32_t value) {
    static uint32_t copy[WORDS];
    int wrong = 0;
    CHECK(cudaMemcpy(copy, memory, sizeof copy, cudaMemcpyDefault));
    for (uint32_t i = 0; i < WORDS; i++)
        wrong += copy[i] != value + i;
    return wrong;
}

// The peer writes and reads `memory`, which is device 0's.
static void use_from_peer(const char *what, uint32_t *memory) {
    unsigned long long *total, sums = 0;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&total, sizeof *total));
    CHECK(cudaMemset(total, 0, sizeof *total));
    fill<<<BLOCKS, 256>>>(memory, 17, 0);
    sum<<<BLOCKS, 256>>>(memory, total);
    CHECK(cudaMemcpy(&sums, total, sizeof sums, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(total));
    printf("%s: written by the peer: wrong words %d, read by the peer: %s\n", what, wrong_words(memory, 17), sums == expected(17) ? "right" : "wrong");
}

static uint32_t *on_device_zero() {
    uint32_t *memory;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, WORDS * sizeof *memory));
    return memory;
}

// Blocks are taken after the free until the freed one is among them, or it may not be used again.
static void recycle() {
    uint32_t *fresh[FRESH];
    cudaStream_t waits, slow, fast;
    cudaEvent_t done;
    int wrong = 0, again = 0, taken;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&waits, cudaStreamNonBlocking));
    uint32_t *behind = on_device_zero();
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t *old = on_device_zero();
        CHECK(cudaSetDevice(1));
        fill<<<BLOCKS, 256, 0, slow>>>(old, 1000 + round, 500);
        CHECK(cudaEventRecord(done, slow));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamWaitEvent(waits, done, 0));
        fill<<<1, 256, 0, waits>>>(behind, round, 0); // for a bare wait, without work behind it, cudaFree does not wait
        CHECK(cudaFree(old));
        for (taken = 0; taken < FRESH && (taken == 0 || fresh[taken - 1] != old); taken++)
            fresh[taken] = on_device_zero();
        again += fresh[taken - 1] == old;
        CHECK(cudaSetDevice(1));
        for (int i = 0; i < taken; i++)
            fill<<<BLOCKS, 256, 0, fast>>>(fresh[i], 5000 + round + i, 0);
        CHECK(cudaStreamSynchronize(fast));
        CHECK(cudaStreamSynchronize(slow));
        for (int i = 0; i < taken; i++)
            wrong += wrong_words(fresh[i], 5000 + round + i);
        CHECK(cudaSetDevice(0));
        for (int i = 0; i < taken; i++)
            CHECK(cudaFree(fresh[i]));
    }
    CHECK(cudaFree(behind));
    printf("blocks written by the peer's old kernel and by its new one: wrong words %d\n", wrong);
    fprintf(stderr, "used again: %d\n", again);
}

int main() {
    uint32_t *before = on_device_zero(), *after;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
    }
    after = on_device_zero();
    use_from_peer("allocated before peer access", before);
    use_from_peer("allocated after", after);
    CHECK(cudaFree(before));
    CHECK(cudaFree(after));
    use_from_peer("used again", before = on_device_zero());
    CHECK(cudaFree(before));
    recycle();
    return 0;
}
