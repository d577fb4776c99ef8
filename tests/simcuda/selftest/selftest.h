/*
 * selftest.h — what the simulator's own tests share: one line a check, and small pieces of "kernel".
 * A program exits with 1 when a check failed. None of them uses the shim.
 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <cuda.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failures;

static inline void check(bool ok, const char *what) {
    printf("%s %s\n", ok ? "ok" : "not ok", what);
    fflush(stdout);
    failures += !ok;
}

/* Compares a result code and says what came instead. */
static inline void expect(int got, int want, const char *what) {
    if (got != want)
        printf("# %s: %d instead of %d\n", what, got, want);
    check(got == want, what);
}

static inline int finish(void) {
    return failures ? 1 : 0;
}

static inline double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* A kernel that runs for data milliseconds. */
static inline void slow(void *data) {
    sleep_ms((long)(size_t)data);
}

static inline CUcontext start(int device) {
    CUcontext ctx = NULL;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(ctx) != CUDA_SUCCESS) {
        printf("not ok the driver starts\n");
        exit(1);
    }
    return ctx;
}

static inline int byte_at(CUdeviceptr p) {
    unsigned char b = 0;
    return cuMemcpyDtoH(&b, p, 1) == CUDA_SUCCESS ? b : -1;
}

#endif
