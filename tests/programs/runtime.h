/*
 * For programs that use CUDA's runtime: checked calls, the pretended kernel and small helpers around device memory.
 *
 * The kernel is a host function that sleeps, followed by a queued memset: it needs no nvcc and runs alike on the simulated and
 * the real driver.
 */
#ifndef CUPLUG_TEST_RUNTIME_H
#define CUPLUG_TEST_RUNTIME_H

#include "program.h"
#include <cuda_runtime_api.h>

#define RT(call) runtime_must(call, #call, __FILE__, __LINE__)

static inline void runtime_must(cudaError_t error, const char *call, const char *file, int line) {
    if (error != cudaSuccess)
        die("%s:%d: %s: %s", file, line, call, cudaGetErrorName(error));
}

static inline void CUDART_CB sleep_in_stream(void *ms) {
    sleep_ms((int)(intptr_t)ms);
}

/* Occupies the stream for ms milliseconds. */
static inline void delay(cudaStream_t stream, int ms) {
    RT(cudaLaunchHostFunc(stream, sleep_in_stream, (void *)(intptr_t)ms));
}

/* A kernel that runs for ms milliseconds and writes value over memory at its end. */
static inline void slow_fill(void *memory, int value, size_t size, cudaStream_t stream, int ms) {
    delay(stream, ms);
    RT(cudaMemsetAsync(memory, value, size, stream));
}

/* Bytes of device memory that are not value. Waits for everything first, so that a late write counts. */
static inline size_t wrong_on_device(const void *memory, int value, size_t size) {
    unsigned char *copy = malloc(size);
    if (!copy)
        die("no host memory");
    RT(cudaDeviceSynchronize());
    RT(cudaMemcpy(copy, memory, size, cudaMemcpyDeviceToHost));
    size_t wrong = wrong_bytes(copy, value, size);
    free(copy);
    return wrong;
}

static inline cudaStream_t new_stream(unsigned flags) {
    cudaStream_t stream;
    RT(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

/* A thread that allocates and frees until the bool `stop` points to is true. */
static inline void *allocate_until(void *stop) {
    while (!__atomic_load_n((bool *)stop, __ATOMIC_ACQUIRE)) {
        void *memory;
        RT(cudaMalloc(&memory, 64 * KIB));
        RT(cudaFree(memory));
    }
    return NULL;
}

static inline int device_count(void) {
    int count = 0;
    RT(cudaGetDeviceCount(&count));
    return count;
}

/* What a block held when a stream came to reading it, looked at once the stream has. */
struct reading {
    unsigned char *copy; /* pinned, so that the read-back is queued and not waited for */
    size_t size;
    int value; /* of each byte, as it should be */
    cudaEvent_t done;
    bool used;
};

static inline void reading_init(struct reading *reading, size_t largest) {
    RT(cudaMallocHost((void **)&reading->copy, largest));
    RT(cudaEventCreateWithFlags(&reading->done, cudaEventDisableTiming));
}

static inline void read_back(struct reading *reading, const void *block, int value, size_t size, cudaStream_t stream) {
    reading->value = value;
    reading->size = size;
    reading->used = true;
    RT(cudaMemcpyAsync(reading->copy, block, size, cudaMemcpyDeviceToHost, stream));
    RT(cudaEventRecord(reading->done, stream));
}

/* Waits for it. False if nothing was read since the last time. */
static inline bool wrong_reading(struct reading *reading) {
    if (!reading->used)
        return false;
    RT(cudaEventSynchronize(reading->done));
    reading->used = false;
    return wrong_bytes(reading->copy, reading->value, reading->size) != 0;
}

/* Devices 0 and 1 reach each other, or the program ends here. */
static inline void needs_peers(void) {
    int can = 0;

    if (device_count() < 2)
        skip("needs two devices");
    RT(cudaDeviceCanAccessPeer(&can, 1, 0));
    if (!can)
        skip("the devices do not reach each other");
}

#endif
