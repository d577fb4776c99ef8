/*
 * demo.c: the job that cuplug is for, in small: a loop that allocates, works and frees, with and without work on the device, and checks its data.
 * Written against the CUDA runtime; runs unchanged on a GPU and on the simulated driver. "Work" is a queued memset and a copy back. Prints
 * key=value lines that tests/demo/run makes a table of.
 */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAIRS = 2000, STEPS = 300, BLOCKS = 8 };
static const size_t pair_size = 4 << 20, block_size = 1 << 20;

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "demo: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static double now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static double pairs(void) {
    double start;
    void *block;

    CHECK(cudaMalloc(&block, pair_size));
    CHECK(cudaFree(block));
    start = now();
    for (int i = 0; i < PAIRS; i++) {
        CHECK(cudaMalloc(&block, pair_size));
        CHECK(cudaFree(block));
    }
    return (now() - start) / PAIRS;
}

/* Each step allocates its blocks, fills them on two streams, copies one byte of each back and frees them with the work still queued. */
static double around_work(int *correct) {
    unsigned char *seen;
    cudaStream_t stream[2];
    double start;

    CHECK(cudaMallocHost((void **)&seen, STEPS * BLOCKS));
    for (int s = 0; s < 2; s++)
        CHECK(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
    start = now();
    for (int step = 0; step < STEPS; step++) {
        unsigned char *block[BLOCKS];

        for (int b = 0; b < BLOCKS; b++) {
            CHECK(cudaMalloc((void **)&block[b], block_size));
            CHECK(cudaMemsetAsync(block[b], (step * BLOCKS + b) & 255, block_size, stream[b % 2]));
            CHECK(cudaMemcpyAsync(seen + step * BLOCKS + b, block[b] + block_size - 1, 1, cudaMemcpyDeviceToHost, stream[b % 2]));
        }
        for (int b = 0; b < BLOCKS; b++)
            CHECK(cudaFree(block[b]));
    }
    CHECK(cudaDeviceSynchronize());
    start = (now() - start) / (STEPS * BLOCKS);
    *correct = 1;
    for (int i = 0; i < STEPS * BLOCKS; i++)
        *correct &= seen[i] == (i & 255);
    for (int s = 0; s < 2; s++)
        CHECK(cudaStreamDestroy(stream[s]));
    CHECK(cudaFreeHost(seen));
    return start;
}

int main(void) {
    double pair, step;
    int correct;

    CHECK(cudaFree(NULL));
    pair = pairs();
    step = around_work(&correct);
    printf("pair=%.3f\nwork=%.3f\ncorrect=%s\n", pair, step, correct ? "yes" : "NO");
    return !correct;
}
