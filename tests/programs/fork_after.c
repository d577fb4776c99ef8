/*
 * A program uses CUDA and then forks: the child's calls are refused as not initialised, whatever it frees or allocates, and it
 * can exit; the parent's memory is untouched. Threads of the parent allocate during the forks (argument: how many forks).
 */
#include "runtime.h"
#include <cuda.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>

#define CHURNERS 8
#define SIZE (64 * KIB)

static bool stop;
static CUresult (*driver_alloc)(CUdeviceptr *, size_t);
static CUresult (*driver_free)(CUdeviceptr);

static void *driver_function(const char *name) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    RT(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    return function;
}

/* In a child that hangs: where. The signal strikes again when this returns, and ends it. */
static void say_where(int signal_number) {
    void *stack[64];
    backtrace_symbols_fd(stack, backtrace(stack, COUNT_OF(stack)), STDERR_FILENO);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* In the child: the codes as an exit status, for the parent to print. */
static void __attribute__((noreturn)) child(void *parents, int how) {
    void *memory = NULL;
    bool refused = cudaMalloc(&memory, SIZE) == cudaErrorInitializationError;
    bool ordered = cudaMallocAsync(&memory, SIZE, 0) == cudaErrorInitializationError;
    bool kept = cudaFree(parents) != cudaSuccess;
    CUdeviceptr direct;
    bool driver = driver_alloc(&direct, SIZE) == CUDA_ERROR_NOT_INITIALIZED &&
                  driver_free((CUdeviceptr)parents) == CUDA_ERROR_NOT_INITIALIZED;
    int status = refused | ordered << 1 | kept << 2 | driver << 3;
    if (how)
        _exit(status);
    exit(status);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 20, refused = 0, ordered = 0, kept = 0, driver = 0, stuck = 0;
    pthread_t threads[CHURNERS];
    void *memory;
    backtrace(&memory, 1); /* loads what it needs before there is anything to hang in */
    RT(cudaMalloc(&memory, SIZE));
    RT(cudaMemset(memory, 0x33, SIZE));
    *(void **)&driver_alloc = driver_function("cuMemAlloc");
    *(void **)&driver_free = driver_function("cuMemFree");
    for (int i = 0; i < CHURNERS; i++)
        start_thread(&threads[i], allocate_until, &stop);
    fflush(stdout);
    for (int i = 0; i < forks; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGALRM, say_where);
            alarm(15);
            child(memory, i % 2);
        }
        waitpid(pid, &status, 0);
        stuck += !WIFEXITED(status);
        refused += WIFEXITED(status) && (WEXITSTATUS(status) & 1);
        ordered += WIFEXITED(status) && (WEXITSTATUS(status) & 2);
        kept += WIFEXITED(status) && (WEXITSTATUS(status) & 4);
        driver += WIFEXITED(status) && (WEXITSTATUS(status) & 8);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    printf("children: %d, cudaMalloc refused %d, cudaMallocAsync refused %d, cudaFree refused %d, the driver's functions refused "
           "%d, not ended by themselves %d\n",
           forks, refused, ordered, kept, driver, stuck);
    printf("parent's data: wrong bytes %zu\n", wrong_on_device(memory, 0x33, SIZE));
    RT(cudaFree(memory));
    return 0;
}
