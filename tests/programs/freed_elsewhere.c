/*
 * Blocks allocated on one stream, filled there, handed by an event to another stream (or the default stream), read there and
 * freed in its order: the first stream gets them again only behind that reading. Argument: how many.
 */
#include "runtime.h"

#define SIZE (64 * KIB)
#define IN_FLIGHT 32

static struct reading {
    unsigned char *copy; /* pinned, so that the read-back is queued and not waited for */
    int value;
    cudaEvent_t filled, done;
    bool used;
} readings[IN_FLIGHT];

static size_t wrong;

static void check(struct reading *reading) {
    if (!reading->used)
        return;
    RT(cudaEventSynchronize(reading->done));
    wrong += wrong_bytes(reading->copy, reading->value, SIZE) != 0;
}

static void pass_on(struct reading *reading, int round, cudaStream_t from, cudaStream_t to) {
    void *block;
    check(reading);
    reading->value = round % 251 + 1;
    reading->used = true;
    RT(cudaMallocAsync(&block, SIZE, from));
    if (round % 499 == 0) /* work pending where it was allocated */
        delay(from, 2);
    RT(cudaMemsetAsync(block, reading->value, SIZE, from));
    RT(cudaEventRecord(reading->filled, from));
    RT(cudaStreamWaitEvent(to, reading->filled, 0));
    if (round % 251 == 0) /* a reader that is late: whoever has the block meanwhile is read instead */
        delay(to, 2);
    RT(cudaMemcpyAsync(reading->copy, block, SIZE, cudaMemcpyDeviceToHost, to));
    RT(cudaEventRecord(reading->done, to));
    RT(cudaFreeAsync(block, to));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    cudaStream_t from = new_stream(cudaStreamNonBlocking), to = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < IN_FLIGHT; i++) {
        RT(cudaMallocHost((void **)&readings[i].copy, SIZE));
        RT(cudaEventCreateWithFlags(&readings[i].filled, cudaEventDisableTiming));
        RT(cudaEventCreateWithFlags(&readings[i].done, cudaEventDisableTiming));
    }
    for (int round = 0; round < rounds; round++)
        pass_on(&readings[round % IN_FLIGHT], round, from, round % 2 ? to : NULL);
    for (int i = 0; i < IN_FLIGHT; i++)
        check(&readings[i]);
    printf("freed on another stream: %d, wrong: %zu\n", rounds, wrong);
    return 0;
}
