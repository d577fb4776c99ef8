// persistent_kernel.cu — an allocation must not order new work behind work submitted after the free. A kernel on
// one stream spins until a kernel on another stream sets its flag; between the two launches the program allocates
// a block that was freed before the first. Natively this runs; if the allocation makes later work wait for all
// earlier work, the flag is never set. The spin is bounded, so that a fault shows as "finished: no" and not as a
// machine that hangs.

#include "check.cuh"

enum { BLOCKS = 8 };

// About 5 s at the highest SM clock.
static const long long SPIN_CYCLES = 10000000000ll;

struct shared_flags {
    int go, seen;
};

__global__ static void persistent(volatile struct shared_flags *flags, long long limit) {
    long long start = clock64();
    while (!flags->go && clock64() - start < limit)
        ;
    flags->seen = flags->go;
}

__global__ static void set_flag(volatile struct shared_flags *flags) {
    flags->go = 1;
}

__global__ static void busy(uint32_t microseconds) {
    hold_us(microseconds);
}

struct setup {
    cudaStream_t first, second, third;
    struct shared_flags *flags;
};

// A first launch may load the kernel's code and wait for the device, which would hang natively too.
static void warm_up(const struct setup *setup) {
    set_flag<<<1, 1, 0, setup->second>>>(setup->flags);
    CHECK(cudaDeviceSynchronize());
    persistent<<<1, 1, 0, setup->first>>>(setup->flags, SPIN_CYCLES);
    busy<<<1, 1, 0, setup->third>>>(1);
    CHECK(cudaDeviceSynchronize());
}

static bool finishes(const struct setup *setup, size_t bytes, bool busy_at_free) {
    struct shared_flags result;
    void *freed[BLOCKS], *taken[BLOCKS];
    CHECK(cudaMemset(setup->flags, 0, sizeof *setup->flags));
    for (void *&block : freed)
        CHECK(cudaMalloc(&block, bytes));
    CHECK(cudaDeviceSynchronize());
    if (busy_at_free)
        busy<<<1, 1, 0, setup->third>>>(20000);
    for (void *block : freed)
        CHECK(cudaFree(block));

    persistent<<<1, 1, 0, setup->first>>>(setup->flags, SPIN_CYCLES);
    for (void *&block : taken)
        CHECK(cudaMalloc(&block, bytes));
    set_flag<<<1, 1, 0, setup->second>>>(setup->flags);
    CHECK(cudaGetLastError());

    CHECK(cudaStreamSynchronize(setup->first));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&result, setup->flags, sizeof result, cudaMemcpyDeviceToHost));
    for (void *block : taken)
        CHECK(cudaFree(block));
    fprintf(stderr, "%zu bytes, %s at the free: %s\n", bytes, busy_at_free ? "device busy" : "device idle",
            result.seen ? "finished" : "the flag was not set in time");
    return result.seen != 0;
}

int main() {
    static const size_t sizes[] = {4096, 1u << 20, 32u << 20};
    struct setup setup;
    bool finished = true;
    CHECK(cudaStreamCreateWithFlags(&setup.first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&setup.second, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&setup.third, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&setup.flags, sizeof *setup.flags));
    warm_up(&setup);
    for (size_t size : sizes)
        for (bool busy_at_free : {false, true})
            finished = finished && finishes(&setup, size, busy_at_free);
    CHECK(cudaFree(setup.flags));
    printf("finished: %s\n", finished ? "yes" : "no");
    return 0;
}
