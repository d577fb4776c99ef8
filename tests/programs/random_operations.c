/*
 * Several threads allocate and free at random on two devices (or one), in every served way: synchronous, pitched, in the order of
 * a created stream, of the default ones; freed so or otherwise, by the same thread or another, with any device current, some
 * after their stream was destroyed. Arguments: how many allocations altogether.
 */
#include "runtime.h"

#define THREADS 8
#define SHELF 256

struct item {
    void *memory;
    int device;
    cudaStream_t stream; /* it may be freed in this stream's order; NULL: by cudaFree only */
};

static struct item shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;
static int rounds, devices;

/* Puts one item on the shelf and takes another, or nothing, away. */
static struct item exchange(struct item mine, uint32_t *state) {
    size_t place = next_random(state) % SHELF;

    pthread_mutex_lock(&shelf_lock);
    struct item theirs = shelf[place];
    shelf[place] = mine;
    pthread_mutex_unlock(&shelf_lock);
    return theirs;
}

/* `own` is the calling thread's stream, on `device`. */
static void drop(struct item item, int device, cudaStream_t own, uint32_t *state) {
    if (!item.memory)
        return;
    if (item.stream && next_random(state) % 2) {
        RT(cudaSetDevice(item.device));
        RT(cudaFreeAsync(item.memory, item.device != device || next_random(state) % 4 ? item.stream : own));
        return;
    }
    RT(cudaSetDevice((int)(next_random(state) % (unsigned)devices)));
    RT(cudaFree(item.memory));
}

static void *work(void *argument) {
    uint32_t state = 99 + 7919 * (uint32_t)(intptr_t)argument;
    int device = (int)((intptr_t)argument % devices);
    cudaStream_t stream = NULL;

    RT(cudaSetDevice(device));
    for (int round = 0; round < rounds; round++) {
        size_t size = 1 + next_random(&state) % (next_random(&state) % 4 ? 3000 : 12000), pitch;
        struct item item = {.device = device};

        RT(cudaSetDevice(device));
        if (round % 500 == 0) {
            if (stream)
                RT(cudaStreamDestroy(stream));
            stream = new_stream(round % 1000 ? cudaStreamNonBlocking : cudaStreamDefault);
        }
        switch (next_random(&state) % 6) {
        case 0:
            RT(cudaMallocPitch(&item.memory, &pitch, 1 + size % 500, 3));
            break;
        case 1:
            RT(cudaMallocAsync(&item.memory, size, stream)); /* whose stream may be gone when it is freed */
            break;
        case 2:
            item.stream = next_random(&state) % 2 ? cudaStreamLegacy : cudaStreamPerThread;
            RT(cudaMallocAsync(&item.memory, size, item.stream));
            break;
        case 3:
            RT(cudaMallocAsync(&item.memory, size, stream));
            RT(cudaFreeAsync(item.memory, stream));
            item.memory = NULL;
            break;
        default:
            RT(cudaMalloc(&item.memory, size));
        }
        if (item.memory)
            drop(exchange(item, &state), device, stream, &state);
    }
    RT(cudaSetDevice(device));
    RT(cudaStreamDestroy(stream));
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100000;
    pthread_t threads[THREADS];
    uint32_t state = 1;
    void *last;

    RT(cudaGetDeviceCount(&devices));
    devices = devices > 2 ? 2 : devices;
    rounds = count / THREADS;
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SHELF; i++)
        drop((struct item){.memory = shelf[i].memory, .device = shelf[i].device}, 0, NULL, &state);
    for (int device = 0; device < devices; device++) {
        RT(cudaSetDevice(device));
        RT(cudaDeviceSynchronize());
    }
    for (int i = 0; i < 32; i++) { /* whatever looks for work that is done finds it by now */
        RT(cudaMalloc(&last, 1));
        RT(cudaFree(last));
    }
    printf("done\nexpect allocations=%d frees=%d live_blocks=0 live_bytes=0\n", rounds * THREADS + 32, rounds * THREADS + 32);
    return 0;
}
