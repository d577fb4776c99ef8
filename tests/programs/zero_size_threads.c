/*
 * Sixteen threads allocate and free zero bytes and one byte by turns: nothing may collide, and nothing may stay behind. Each
 * keeps so many single bytes that a tracker has several threads' in one place. Argument: rounds per thread.
 */
#include "runtime.h"

#define THREADS 16
#define KEPT 64

static int rounds;

static void *work(void *unused) {
    (void)unused;
    void *byte[KEPT] = {NULL};
    for (int i = 0; i < rounds; i++) {
        void *nothing = (void *)0x7;
        RT(cudaMalloc(&nothing, 0));
        if (nothing)
            die("zero bytes have an address");
        if (i % 2 == 0) {
            RT(cudaFree(byte[i / 2 % KEPT]));
            RT(cudaMalloc(&byte[i / 2 % KEPT], 1));
        }
        RT(cudaFree(nothing));
    }
    for (int i = 0; i < KEPT; i++)
        RT(cudaFree(byte[i]));
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    rounds = argc > 1 ? atoi(argv[1]) : 10000;
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int bytes = THREADS * ((rounds + 1) / 2);
    printf("done\n");
    printf("expect allocations=%d frees=%d live_blocks=0 live_bytes=0 failed=0\n", bytes, bytes);
    return 0;
}
