/*
 * Small blocks allocated and freed at once, by one thread or several, while few or very many others are live: neither the
 * driver's part nor ours may grow with these. Arguments: threads, pairs (of all threads together), live blocks; with a fourth, the pairs
 * are in the order of so many streams, which each thread has for itself and takes in turn.
 */
#include "driver.h"
#include <dlfcn.h>

#define SIZE (4 * KIB)
#define WARM 1000
#define MOST_STREAMS 64

static CUcontext context;
static pthread_barrier_t turn;
static long pairs; /* of each thread */
static int streams;
static __thread CUstream stream[MOST_STREAMS];

static void some_pairs(long count) {
    for (long i = 0; i < count; i++) {
        CUdeviceptr memory;
        if (streams) {
            CU(cuMemAllocAsync(&memory, SIZE, stream[i % streams]));
            CU(cuMemFreeAsync(memory, stream[i % streams]));
        } else {
            CU(cuMemAlloc(&memory, SIZE));
            CU(cuMemFree(memory));
        }
    }
}

/* What instructions are counted of. */
__attribute__((noinline)) void counted_pairs(void) {
    some_pairs(pairs);
    __asm__ volatile(""); /* no tail call */
}

static void *work(void *unused) {
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < streams; i++)
        stream[i] = new_stream(CU_STREAM_NON_BLOCKING);
    some_pairs(WARM);
    pthread_barrier_wait(&turn); /* all are warm: what was called so far can be looked at */
    pthread_barrier_wait(&turn);
    counted_pairs();
    return unused;
}

static const char *(*simulated_calls)(int, unsigned long *);

/* Calls of the simulated driver so far: that allocate or free device memory; of any kind. */
static void count_calls(unsigned long *memory, unsigned long *all) {
    unsigned long count;
    const char *name;
    *memory = *all = 0;
    for (int row = 0; simulated_calls && (name = simulated_calls(row, &count)); row++) {
        *all += count;
        if (strncmp(name, "cuMemAlloc", 10) == 0 || strncmp(name, "cuMemFree", 9) == 0)
            *memory += count;
    }
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    long live = argc > 3 ? atol(argv[3]) : 0;
    unsigned long memory_before, memory, all_before, all;
    pthread_t thread[64];
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    streams = argc > 4 ? atoi(argv[4]) : 0;
    if (threads < 1 || threads > 64 || streams < 0 || streams > MOST_STREAMS)
        die("threads: 1 to 64, streams: at most 64");
    if (driver)
        *(void **)&simulated_calls = dlsym(driver, "simcuda_calls");
    context = use_primary(0);
    pairs = (argc > 2 ? atol(argv[2]) : 1000) / threads;
    for (long i = 0; i < live; i++) {
        CUdeviceptr kept;
        CU(cuMemAlloc(&kept, SIZE));
    }
    pthread_barrier_init(&turn, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++)
        start_thread(&thread[i], work, NULL);
    pthread_barrier_wait(&turn);
    count_calls(&memory_before, &all_before);
    pthread_barrier_wait(&turn);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    count_calls(&memory, &all);
    memory -= memory_before;
    /* Threads that free at the same time may, once, have less ready than they had while they got warm. */
    if (threads > 1 && memory <= (unsigned long)threads)
        memory = 0;
    printf("calls for memory: %lu\n", memory);
    fprintf(stderr, "%lu\n", all - all_before);
    return 0;
}
