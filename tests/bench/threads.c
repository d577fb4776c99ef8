/*
 * Patterns of several threads: pairs in each, and blocks that one thread allocates and another frees.
 */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

enum { MOST_THREADS = 64, RING = 256 };

static struct {
    const struct bench_allocator *a;
    size_t size;
    pthread_barrier_t start;
    bool stop; /* set by the first thread, read by the others */
} shared;

struct worker {
    pthread_t thread;
    long pairs;
    double seconds;
    bool failed;
} __attribute__((aligned(128)));

static void *pairs_of_a_thread(void *argument) {
    struct worker *w = argument;
    const struct bench_allocator *a = shared.a;
    size_t size = shared.size;
    double start;
    long count = 0;

    cuCtxSetCurrent(bench_context);
    for (int i = 0; i < 32; i++) { /* a thread's first calls set up what is its own */
        void *block = a->alloc(size, NULL);
        if (block)
            a->free(block, size, NULL);
    }
    pthread_barrier_wait(&shared.start);
    start = bench_now();
    while (!__atomic_load_n(&shared.stop, __ATOMIC_RELAXED)) {
        void *block = a->alloc(size, NULL);
        if (!block) {
            w->failed = true;
            break;
        }
        a->free(block, size, NULL);
        count++;
    }
    w->seconds = bench_now() - start;
    w->pairs = count;
    return NULL;
}

/* threads COUNT SIZE: ns= per pair, all threads' pairs together. */
static const char *threads(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    static struct worker workers[MOST_THREADS];
    int count = (int)arguments->number[0];
    double rate = 0;
    bool failed = false;

    if (count < 1 || count > MOST_THREADS)
        return "too many threads";
    shared.a = a;
    shared.size = (size_t)arguments->number[1];
    __atomic_store_n(&shared.stop, false, __ATOMIC_RELAXED);
    pthread_barrier_init(&shared.start, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        workers[i].failed = false;
        if (pthread_create(&workers[i].thread, NULL, pairs_of_a_thread, &workers[i]) != 0)
            return "no thread";
    }
    pthread_barrier_wait(&shared.start);
    usleep((useconds_t)(bench_seconds * 4 * 1e6));
    __atomic_store_n(&shared.stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        failed |= workers[i].failed;
        rate += (double)workers[i].pairs / workers[i].seconds;
    }
    pthread_barrier_destroy(&shared.start);
    if (failed)
        return "no memory";
    printf("ns=%.2f", 1e9 / rate);
    return NULL;
}

/* Blocks on their way from the one that allocates to the one that frees; each side writes its own counter only. */
static struct {
    void *block[RING];
    unsigned long __attribute__((aligned(128))) head;
    unsigned long __attribute__((aligned(128))) tail;
} ring;

static void *free_what_comes(void *argument) {
    const struct bench_allocator *a = argument;
    cuCtxSetCurrent(bench_context);
    pthread_barrier_wait(&shared.start);
    for (unsigned long tail = 0;; tail++) {
        void *block;
        while (tail == __atomic_load_n(&ring.head, __ATOMIC_ACQUIRE)) /* pairs with the release in handoff */
            sched_yield();
        block = ring.block[tail % RING];
        if (!block)
            return NULL;
        a->free(block, shared.size, NULL);
        __atomic_store_n(&ring.tail, tail + 1, __ATOMIC_RELEASE); /* pairs with the acquire in push */
    }
}

static void push(unsigned long head, void *block) {
    while (head - __atomic_load_n(&ring.tail, __ATOMIC_ACQUIRE) == RING)
        sched_yield();
    ring.block[head % RING] = block;
    __atomic_store_n(&ring.head, head + 1, __ATOMIC_RELEASE);
}

/* handoff SIZE: ns= per block that one thread allocates and another frees, both at work. */
static const char *handoff(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    unsigned long head = 0;
    pthread_t consumer;
    double start;
    bool failed = false;

    shared.size = (size_t)arguments->number[0];
    ring.head = ring.tail = 0;
    pthread_barrier_init(&shared.start, NULL, 2);
    if (pthread_create(&consumer, NULL, free_what_comes, (void *)a) != 0)
        return "no thread";
    pthread_barrier_wait(&shared.start);
    start = bench_now();
    do {
        for (int i = 0; i < 64 && !failed; i++) {
            void *block = a->alloc(shared.size, NULL);
            failed = !block;
            if (block)
                push(head++, block);
        }
    } while (!failed && bench_now() - start < bench_seconds * 4);
    push(head, NULL);
    pthread_join(consumer, NULL);
    start = bench_now() - start;
    pthread_barrier_destroy(&shared.start);
    if (failed)
        return "no memory";
    printf("ns=%.2f", start * 1e9 / (double)head);
    return NULL;
}

const struct bench_pattern bench_threads_patterns[] = {{"threads", threads}, {"handoff", handoff}, {0}};
