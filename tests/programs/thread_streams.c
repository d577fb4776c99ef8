/*
 * Threads that each use their own default stream (built with per-thread default streams, plain handle 0; else
 * cudaStreamPerThread) and pass memory on through the allocator. All threads name their stream alike, so a cache keyed by the
 * handle mixes them up.
 */
#include "runtime.h"

#define THREADS 4
#define ROUNDS 6
#define SIZE (64 * KIB)

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define MINE ((cudaStream_t)0)
#else
#define MINE cudaStreamPerThread
#endif

static unsigned wrong;
static pthread_barrier_t turn;

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    unsigned char *copy;
    RT(cudaMallocHost((void **)&copy, SIZE));
    for (int round = 0; round < ROUNDS; round++) {
        void *memory;
        int value = 1 + me * 16 + round;
        pthread_barrier_wait(&turn);
        RT(cudaMallocAsync(&memory, SIZE, MINE));
        /* Every other thread is slow, so that some frees are pending while other threads allocate. */
        if ((me + round) % 2)
            delay(MINE, KERNEL_MS / 4);
        RT(cudaMemsetAsync(memory, value, SIZE, MINE));
        if ((me + round) % 2)
            delay(MINE, KERNEL_MS / 4);
        RT(cudaMemcpyAsync(copy, memory, SIZE, cudaMemcpyDeviceToHost, MINE));
        RT(cudaFreeAsync(memory, MINE));
        /* A second block at once: the first one's memory, if this is the same stream. */
        RT(cudaMallocAsync(&memory, SIZE, MINE));
        RT(cudaMemsetAsync(memory, 0, SIZE, MINE));
        RT(cudaFreeAsync(memory, MINE));
        RT(cudaStreamSynchronize(MINE));
        if (wrong_bytes(copy, value, SIZE))
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    RT(cudaFreeHost(copy));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    RT(cudaFree(NULL));
    pthread_barrier_init(&turn, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("threads with streams of their own: wrong blocks %u\n", wrong);
    return 0;
}
