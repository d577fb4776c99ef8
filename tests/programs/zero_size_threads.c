/*
 * Sixteen threads allocate and free zero bytes and one byte by turns: nothing may collide, and nothing may stay behind.
 * Argument: rounds per thread.
 */
#include "runtime.h"

#define THREADS 16

static int rounds;

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < rounds; i++) {
        void *nothing = (void *)0x7, *byte;
        RT(cudaMalloc(&nothing, 0));
        if (nothing)
            die("zero bytes have an address");
        if (i % 8 == 0) {
            RT(cudaMalloc(&byte, 1));
            RT(cudaFree(byte));
        }
        RT(cudaFree(nothing));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    rounds = argc > 1 ? atoi(argv[1]) : 10000;
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int bytes = THREADS * ((rounds + 7) / 8);
    printf("done\n");
    printf("expect allocations=%d frees=%d live_blocks=0 live_bytes=0 failed=0\n", bytes, bytes);
    return 0;
}
