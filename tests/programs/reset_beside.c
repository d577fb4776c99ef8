/*
 * Threads allocate and free small blocks, each other's too, while the primary context is reset again and again. Calls may fail then; an allocation that
 * succeeds is memory, and everything comes back.
 *
 *     reset_beside SECONDS
 */
#include "driver.h"

#define THREADS 3
#define SHELF 32

static bool stop;
static CUcontext context;
static CUdeviceptr shelf[SHELF];
static int strays;

static void *allocate(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        cuCtxSetCurrent(__atomic_load_n(&context, __ATOMIC_RELAXED));
        for (int i = 0; i < 50; i++) {
            CUdeviceptr memory = 0;

            seed = seed * 1664525u + 1013904223u;
            if (cuMemAlloc(&memory, (seed >> 8) % 5 * 512 + 512) != CUDA_SUCCESS)
                continue;
            if (!memory || memory % 512)
                __atomic_add_fetch(&strays, 1, __ATOMIC_RELAXED);
            if (seed & 1 << 20) /* to another thread, and one of another's */
                memory = __atomic_exchange_n(&shelf[(seed >> 21) % SHELF], memory, __ATOMIC_RELAXED);
            cuMemFree(memory);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    double end = now_ms() + 1e3 * (argc > 1 ? atof(argv[1]) : 1);
    pthread_t thread[THREADS];
    CUcontext retained;

    context = use_primary(0);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, allocate, (void *)(i + 1)) != 0)
            die("no thread");
    while (now_ms() < end) {
        sleep_ms(3);
        cuDevicePrimaryCtxReset(0);
        if (cuDevicePrimaryCtxRetain(&retained, 0) == CUDA_SUCCESS)
            __atomic_store_n(&context, retained, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("addresses that are none: %d\n", strays);
    return 0;
}
