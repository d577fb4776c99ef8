/*
 * A program uses CUDA and then forks: the child's calls are refused as not initialised, whatever it frees or allocates, and it
 * can exit; the parent's memory is untouched. Threads of the parent allocate during the forks (argument: how many forks).
 */
#include "runtime.h"
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>

#define CHURNERS 8
#define SIZE (64 * KIB)

static bool stop;

/* In a child that hangs: where. The signal strikes again when this returns, and ends it. */
static void say_where(int signal_number) {
    void *stack[64];
    backtrace_symbols_fd(stack, backtrace(stack, COUNT_OF(stack)), STDERR_FILENO);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* In the child: the two codes as an exit status, for the parent to print. */
static void __attribute__((noreturn)) child(void *parents, int how) {
    void *memory = NULL;
    bool refused = cudaMalloc(&memory, SIZE) == cudaErrorInitializationError;
    bool ordered = cudaMallocAsync(&memory, SIZE, 0) == cudaErrorInitializationError;
    bool kept = cudaFree(parents) != cudaSuccess;
    int status = refused | ordered << 1 | kept << 2;
    if (how)
        _exit(status);
    exit(status);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 20, refused = 0, ordered = 0, kept = 0, stuck = 0;
    pthread_t threads[CHURNERS];
    void *memory;
    backtrace(&memory, 1); /* loads what it needs before there is anything to hang in */
    RT(cudaMalloc(&memory, SIZE));
    RT(cudaMemset(memory, 0x33, SIZE));
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
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    printf("children: %d, cudaMalloc refused %d, cudaMallocAsync refused %d, cudaFree refused %d, not ended by themselves %d\n",
           forks, refused, ordered, kept, stuck);
    printf("parent's data: wrong bytes %zu\n", wrong_on_device(memory, 0x33, SIZE));
    RT(cudaFree(memory));
    return 0;
}
