/*
 * Small blocks that threads keep for themselves are everybody's when it matters. One argument:
 *     ended    many threads, one after another, each allocate and free a little: what the first had serves the last
 *     remote   one thread allocates, another frees: what the second gets serves the first
 *     idle     a thread frees 6 MiB and goes on without CUDA: they are there for a larger block (CUPLUG_BACKEND=arena:size=64M)
 *     keys     the same as ended, in a program that has taken every pthread key
 *     counted  the statistics while threads are alive that have just counted
 *     reset    a thread's blocks are no more once the device was reset
 *     forked   children of a thread beside others, each of which ends as a thread does
 */
#include "runtime.h"
#include "shim/cuplug.h"

#include <semaphore.h>
#include <sys/wait.h>

enum { BLOCK = 64 << 10, AT_ONCE = 10, THREADS = 1000, PASSED = 20000, QUEUE = 64, COUNTERS = 4, CHILDREN = 100 };
enum { HELD = 101 /* odd: a thread has taken along more */, MORE = 2 * HELD };

static void *use_and_end(void *unused) {
    void *memory[AT_ONCE];
    (void)unused;
    for (int i = 0; i < AT_ONCE; i++)
        RT(cudaMalloc(&memory[i], BLOCK));
    for (int i = 0; i < AT_ONCE; i++)
        RT(cudaFree(memory[i]));
    return NULL;
}

static void ended(void) {
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) {
        start_thread(&thread, use_and_end, NULL);
        pthread_join(thread, NULL);
    }
    printf("expect allocations=%d frees=%d live_blocks=0\n", THREADS * AT_ONCE, THREADS * AT_ONCE);
}

static void *passed_on[QUEUE];
static sem_t room, there;

static void *free_all(void *unused) {
    (void)unused;
    for (int i = 0; i < PASSED; i++) {
        sem_wait(&there);
        RT(cudaFree(passed_on[i % QUEUE]));
        sem_post(&room);
    }
    return NULL;
}

static void remote(void) {
    pthread_t thread;
    sem_init(&room, 0, QUEUE);
    sem_init(&there, 0, 0);
    start_thread(&thread, free_all, NULL);
    for (int i = 0; i < PASSED; i++) {
        sem_wait(&room);
        RT(cudaMalloc(&passed_on[i % QUEUE], BLOCK));
        sem_post(&there);
    }
    pthread_join(thread, NULL);
    printf("expect allocations=%d frees=%d live_blocks=0\n", PASSED, PASSED);
}

static sem_t freed, end;

static void *free_and_idle(void *unused) {
    void *memory[96];
    (void)unused;
    for (int i = 0; i < 96; i++)
        RT(cudaMalloc(&memory[i], BLOCK));
    for (int i = 0; i < 96; i++)
        RT(cudaFree(memory[i]));
    sem_post(&freed);
    sem_wait(&end);
    return NULL;
}

static void idle(void) {
    pthread_t thread;
    void *most, *rest;
    sem_init(&freed, 0, 0);
    sem_init(&end, 0, 0);
    RT(cudaMalloc(&most, 40 * MIB));
    start_thread(&thread, free_and_idle, NULL);
    sem_wait(&freed);
    printf("the other 24 MiB: %s\n", cudaGetErrorName(cudaMalloc(&rest, 24 * MIB)));
    sem_post(&end);
    pthread_join(thread, NULL);
}

/* The program sets none of its keys. */
static void not_ours(void *value) {
    die("somebody set a key of the program's to %p", value);
}

static void keys(void) {
    pthread_key_t key;
    int taken = 0;
    while (pthread_key_create(&key, not_ours) == 0)
        taken++;
    if (taken == 0)
        die("no keys");
    ended();
}

static pthread_barrier_t counted_so_far, go_on;

static void *count_and_stay(void *unused) {
    void *memory[HELD];
    (void)unused;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < HELD; i++)
            RT(cudaMalloc(&memory[i], 1000));
        if (round == 0)
            for (int i = 0; i < HELD; i++)
                RT(cudaFree(memory[i]));
    }
    pthread_barrier_wait(&counted_so_far);
    pthread_barrier_wait(&go_on);
    for (int i = 0; i < HELD; i++)
        RT(cudaFree(memory[i]));
    return NULL;
}

static long long stat(const char *name) {
    long long value = -1;
    return cuplug_get_stat(name, -1, &value) == 0 ? value : -1;
}

static void counted(void) {
    pthread_t thread[COUNTERS];
    pthread_barrier_init(&counted_so_far, NULL, COUNTERS + 1);
    pthread_barrier_init(&go_on, NULL, COUNTERS + 1);
    for (int i = 0; i < COUNTERS; i++)
        start_thread(&thread[i], count_and_stay, NULL);
    pthread_barrier_wait(&counted_so_far);
    printf("allocations %lld, frees %lld, live blocks %lld, live bytes %lld\n", stat("allocations"), stat("frees"), stat("live_blocks"),
           stat("live_bytes"));
    printf("a peak of all that is live: %s\n", yes_no(stat("peak_live_blocks") >= COUNTERS * HELD));
    pthread_barrier_wait(&go_on);
    for (int i = 0; i < COUNTERS; i++)
        pthread_join(thread[i], NULL);
    printf("expect allocations=%d frees=%d live_blocks=0 live_bytes=0\n", COUNTERS * HELD * 2, COUNTERS * HELD * 2);
}

static void take_and_write(void **memory, int count) {
    for (int i = 0; i < count; i++) {
        RT(cudaMalloc(&memory[i], BLOCK));
        RT(cudaMemset(memory[i], 1 + i, BLOCK));
    }
}

static size_t check_and_free(void **memory, int count) {
    size_t wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += wrong_on_device(memory[i], 1 + i, BLOCK);
    for (int i = 0; i < count; i++)
        RT(cudaFree(memory[i]));
    return wrong;
}

static void *keep_over_reset(void *memory) {
    take_and_write(memory, HELD);
    check_and_free(memory, HELD);
    sem_post(&freed);
    sem_wait(&end);
    take_and_write(memory, HELD);
    return NULL;
}

static void reset(void) {
    static void *theirs[HELD], *ours[MORE];
    pthread_t thread;
    size_t wrong;
    sem_init(&freed, 0, 0);
    sem_init(&end, 0, 0);
    start_thread(&thread, keep_over_reset, theirs);
    sem_wait(&freed);
    RT(cudaDeviceReset());
    take_and_write(ours, MORE);
    sem_post(&end);
    pthread_join(thread, NULL);
    wrong = check_and_free(ours, MORE);
    printf("bytes wrong after the reset: %zu\n", wrong + check_and_free(theirs, HELD));
}

static bool stop;

/* Blocks that no thread keeps for itself. */
static void *allocate_large(void *unused) {
    void *memory;
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        RT(cudaMalloc(&memory, 3 * MIB));
        RT(cudaFree(memory));
    }
    return NULL;
}

static void forked(void) {
    pthread_t thread[3];
    void *memory;
    RT(cudaMalloc(&memory, BLOCK));
    RT(cudaFree(memory));
    for (int i = 0; i < 3; i++)
        start_thread(&thread[i], allocate_large, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            pthread_exit(NULL); /* the last thread: the process ends with it, as by exit(0) */
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            die("child %d: status %d", i, status);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    printf("children that ended: %d\n", CHILDREN);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"ended", ended}, {"remote", remote}, {"idle", idle}, {"keys", keys}, {"counted", counted}, {"reset", reset}, {"forked", forked}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    die("ended, remote, idle, keys, counted, reset or forked?");
}
