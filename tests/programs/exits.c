/*
 * A process ends with memory live, freed and still in use, while other threads allocate: by return, exit, _exit, quick_exit, abort, a signal, exec, or
 * from a thread. What runs late (exit handlers from before and after CUDA was first used, destructors of the
 * program and of thread-local data) still allocates and frees; what it is told depends on how far the driver's own end has come,
 * so only that it comes back counts. Prints nothing. Not among them: pthread_exit in main, after which the driver's threads stay.
 *
 *     exits HOW late|quiet      quiet: nothing late, and no other thread, so that every driver call at the end is somebody else's
 */
#include "runtime.h"

#include <signal.h>

#define BLOCKS 60
#define STATUS 3

static void *blocks[BLOCKS];
static bool is_late;
static int next_late;

static void churn_late(void) {
    void *memory = NULL;

    if (!is_late)
        return;
    cudaFree(blocks[next_late++ % (BLOCKS / 3)]); /* live ones */
    if (cudaMalloc(&memory, 3 * KIB) == cudaSuccess)
        cudaFree(memory);
    if (cudaMallocAsync(&memory, 300 * KIB, 0) == cudaSuccess)
        cudaFreeAsync(memory, 0);
    cudaGetLastError();
}

static void __attribute__((destructor)) late_destructor(void) {
    churn_late();
}

static void late_thread_data(void *unused) {
    (void)unused;
    churn_late();
}

static pthread_key_t key;

/* Never stopped: the process ends around it. Whatever it is told then, it goes on. */
static void *allocate_for_ever(void *unused) {
    (void)unused;
    pthread_setspecific(key, blocks);
    for (size_t i = 0;; i++) {
        void *memory = NULL;

        if (cudaMalloc(&memory, (i % 50 + 1) * 7 * KIB) != cudaSuccess)
            sleep_ms(1);
        cudaFree(memory);
    }
    return NULL;
}

/* A thread whose data ends with it, before the process does. */
static void *allocate_once(void *unused) {
    (void)unused;
    pthread_setspecific(key, blocks);
    void *memory;
    RT(cudaMalloc(&memory, MIB));
    RT(cudaFree(memory));
    return NULL;
}

static void *exit_here(void *unused) {
    (void)unused;
    exit(STATUS);
}

static void end(const char *how, const char *program) {
    pthread_t thread;

    if (strcmp(how, "exit") == 0)
        exit(STATUS);
    if (strcmp(how, "_exit") == 0)
        _exit(STATUS);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(STATUS);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "SIGTERM") == 0)
        raise(SIGTERM);
    if (strcmp(how, "SIGSEGV") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "SIGKILL") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exec") == 0)
        execl("/proc/self/exe", program, "return", "quiet", (char *)NULL);
    if (strcmp(how, "thread") == 0) {
        start_thread(&thread, exit_here, NULL);
        pthread_join(thread, NULL);
    }
    if (strcmp(how, "return") != 0)
        die("%s: not a way to end", how);
}

int main(int argc, char **argv) {
    pthread_t thread;
    cudaStream_t stream;

    if (argc < 3)
        die("exits HOW late|quiet");
    is_late = strcmp(argv[2], "late") == 0;
    atexit(churn_late); /* runs after the driver's handler */
    at_quick_exit(churn_late);
    pthread_key_create(&key, late_thread_data);
    stream = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < BLOCKS; i++)
        RT(cudaMalloc(&blocks[i], (size_t)(i + 1) * 30 * KIB));
    atexit(churn_late); /* before it */
    start_thread(&thread, allocate_once, NULL);
    pthread_join(thread, NULL);
    for (int i = 0; is_late && i < 2; i++) {
        start_thread(&thread, allocate_for_ever, NULL);
        pthread_detach(thread);
    }
    slow_fill(blocks[BLOCKS - 1], 1, KIB, stream, 5);
    for (int i = BLOCKS / 3; i < BLOCKS; i++) /* the rest stays live */
        RT(i % 2 ? cudaFree(blocks[i]) : cudaFreeAsync(blocks[i], stream));
    end(argv[1], argv[0]);
    return STATUS;
}
