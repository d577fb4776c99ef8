/*
 * Blocks allocated on one stream, filled there, handed by an event to another stream (or the default stream), read there and
 * freed in its order: the first stream gets them again only behind that reading. Argument: how many.
 */
#include "runtime.h"

#define SIZE (64 * KIB)
#define IN_FLIGHT 32

static struct reading readings[IN_FLIGHT];
static cudaEvent_t filled[IN_FLIGHT];

static size_t wrong;

static void pass_on(int round, cudaStream_t from, cudaStream_t to) {
    int i = round % IN_FLIGHT, value = round % 251 + 1;
    void *block;
    wrong += wrong_reading(&readings[i]);
    RT(cudaMallocAsync(&block, SIZE, from));
    if (round % 499 == 0) /* work pending where it was allocated */
        delay(from, 2);
    RT(cudaMemsetAsync(block, value, SIZE, from));
    RT(cudaEventRecord(filled[i], from));
    RT(cudaStreamWaitEvent(to, filled[i], 0));
    if (round % 251 == 0) /* a reader that is late: whoever has the block meanwhile is read instead */
        delay(to, 2);
    read_back(&readings[i], block, value, SIZE, to);
    RT(cudaFreeAsync(block, to));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    cudaStream_t from = new_stream(cudaStreamNonBlocking), to = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < IN_FLIGHT; i++) {
        reading_init(&readings[i], SIZE);
        RT(cudaEventCreateWithFlags(&filled[i], cudaEventDisableTiming));
    }
    for (int round = 0; round < rounds; round++)
        pass_on(round, from, round % 2 ? to : NULL);
    for (int i = 0; i < IN_FLIGHT; i++)
        wrong += wrong_reading(&readings[i]);
    printf("freed on another stream: %d, wrong: %zu\n", rounds, wrong);
    return 0;
}
