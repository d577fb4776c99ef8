/*
 * Blocks of many sizes, each filled and read back on a random stream and freed at once, while both are still queued.
 *
 * What was read back must be what was filled: a block handed to its next owner too early shows as the wrong byte. Argument:
 * rounds.
 */
#include "runtime.h"

#define STREAMS 6
#define IN_FLIGHT 64
#define LARGEST (96 * KIB)

static struct reading readings[IN_FLIGHT];

static size_t wrong;

/* Few sizes, so that a block soon meets its next owner, and some in between. */
static size_t random_size(uint32_t *state) {
    static const size_t common[] = {512, 4 * KIB, 40 * KIB, LARGEST};
    return next_random(state) % 4 ? common[next_random(state) % COUNT_OF(common)] : 1 + next_random(state) % LARGEST;
}

static void recycle(struct reading *reading, cudaStream_t stream, int round, uint32_t *state) {
    void *block;
    size_t size = random_size(state);
    int value = round % 251 + 1;
    wrong += wrong_reading(reading);
    RT(cudaMalloc(&block, size));
    RT(cudaMemsetAsync(block, value, size, stream));
    /* Some kernels take their time between the two: a next owner who comes too early is then read back here. */
    if (next_random(state) % 24 == 0)
        delay(stream, 8);
    read_back(reading, block, value, size, stream);
    RT(cudaFree(block));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 2000;
    uint32_t state = 12345;
    cudaStream_t streams[STREAMS] = {cudaStreamLegacy, cudaStreamPerThread};
    for (int i = 2; i < STREAMS; i++)
        streams[i] = new_stream(i % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
    for (int i = 0; i < IN_FLIGHT; i++)
        reading_init(&readings[i], LARGEST);
    for (int round = 0; round < rounds; round++)
        recycle(&readings[round % IN_FLIGHT], streams[next_random(&state) % STREAMS], round, &state);
    for (int i = 0; i < IN_FLIGHT; i++)
        wrong += wrong_reading(&readings[i]);
    printf("recycled blocks: %d, wrong: %zu\n", rounds, wrong);
    return 0;
}
