/*
 * Sixteen threads allocate in every served way, fill, hand blocks to each other, check and free them. Whatever two owners share
 * at one time shows as wrong content. Argument: rounds per thread.
 */
#include "runtime.h"

#define THREADS 16
#define SHELF 64
#define LARGEST (128 * KIB)

struct parcel {
    void *memory;
    size_t size;
    int value;
};

/* Blocks that wait for whoever picks them up; full and filled before they are put here. */
static struct parcel shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;
static int rounds;
static unsigned wrong;

static void fill(struct parcel *parcel, cudaStream_t stream, uint32_t *state) {
    parcel->size = next_random(state) % 8 ? 1 + next_random(state) % (8 * KIB) : 1 + next_random(state) % LARGEST;
    parcel->value = (int)(next_random(state) % 255 + 1);
    if (next_random(state) % 2)
        RT(cudaMalloc(&parcel->memory, parcel->size));
    else
        RT(cudaMallocAsync(&parcel->memory, parcel->size, stream));
    RT(cudaMemsetAsync(parcel->memory, parcel->value, parcel->size, stream));
}

static void check_and_free(const struct parcel *parcel, cudaStream_t stream, unsigned char *copy, uint32_t *state) {
    RT(cudaMemcpyAsync(copy, parcel->memory, parcel->size, cudaMemcpyDeviceToHost, stream));
    bool in_order = next_random(state) % 2;
    if (in_order)
        RT(cudaFreeAsync(parcel->memory, stream));
    RT(cudaStreamSynchronize(stream));
    if (wrong_bytes(copy, parcel->value, parcel->size))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    if (!in_order)
        RT(cudaFree(parcel->memory));
}

static struct parcel exchange(struct parcel mine, uint32_t *state) {
    size_t place = next_random(state) % SHELF;
    pthread_mutex_lock(&shelf_lock);
    struct parcel theirs = shelf[place];
    shelf[place] = mine;
    pthread_mutex_unlock(&shelf_lock);
    return theirs;
}

static void *work(void *argument) {
    uint32_t state = 1000 + 7919 * (uint32_t)(intptr_t)argument;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    unsigned char *copy = malloc(LARGEST);
    for (int round = 0; round < rounds; round++) {
        struct parcel mine;
        fill(&mine, stream, &state);
        if (next_random(&state) % 3 == 0) {
            RT(cudaStreamSynchronize(stream));
            mine = exchange(mine, &state);
            if (!mine.memory)
                continue;
        }
        check_and_free(&mine, stream, copy, &state);
    }
    free(copy);
    RT(cudaStreamDestroy(stream));
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    uint32_t state = 5;
    rounds = argc > 1 ? atoi(argv[1]) : 150;
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unsigned char *copy = malloc(LARGEST);
    for (int i = 0; i < SHELF; i++)
        if (shelf[i].memory)
            check_and_free(&shelf[i], 0, copy, &state);
    free(copy);
    printf("blocks: %d, wrong: %u\n", THREADS * rounds, wrong);
    printf("expect allocations=%d frees=%d live_blocks=0 live_bytes=0 failed=0\n", THREADS * rounds, THREADS * rounds);
    return 0;
}
