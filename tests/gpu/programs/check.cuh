// check.cuh — what every GPU test program needs: stop at the first CUDA error, a kernel that takes a known time,
// a small random number generator. A program that fails a check ends with status 2 and says which call it was, so
// that "same output, same status" compares errors as well as results.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) check_result((call), #call, __FILE__, __LINE__)

static inline void check_result(cudaError_t result, const char *call, const char *file, int line) {
    if (result == cudaSuccess)
        return;
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(result));
    // Other threads may be inside CUDA calls, so no destructors are run.
    _Exit(2);
}

// Waits on the device by its wall clock: the SM clock changes with load.
__device__ static inline void hold_us(uint32_t microseconds) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < (uint64_t)microseconds * 1000);
}

// xorshift: the same sequence in every run, one generator per thread.
static inline uint32_t next_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}
