/*
 * A program with live and freed device memory forks; its children use no CUDA and end: by exit, _exit, quick_exit, in an exit
 * handler's company, and by exec. None may touch what is the parent's. Asks for the driver's version before and after each, so
 * that a log shows what was called in between.
 */
#include "runtime.h"

#include <sys/wait.h>

#define BLOCKS 20
#define SIZE (100 * KIB)

static void end(const char *how, const char *program) {
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(how, "exec") == 0)
        execl("/proc/self/exe", program, "nothing", (char *)NULL);
    exit(0);
}

static void mark(void) {
    int version;
    RT(cudaDriverGetVersion(&version));
}

int main(int argc, char **argv) {
    static const char *const ways[] = {"exit", "_exit", "quick_exit", "exec"};
    void *memory[BLOCKS];
    size_t wrong = 0;

    if (argc > 1) /* the program that was exec'd */
        return 0;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < BLOCKS; i++) {
        RT(cudaMalloc(&memory[i], SIZE));
        RT(cudaMemset(memory[i], i, SIZE));
    }
    RT(cudaDeviceSynchronize());
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        int status = -1;
        slow_fill(memory[BLOCKS - 1], BLOCKS - 1, SIZE, stream, 5); /* still runs when the child ends */
        RT(cudaFree(memory[i]));                                    /* freed, perhaps kept by a cache */
        fflush(stdout);
        mark();
        pid_t child = fork();
        if (child == 0)
            end(ways[i], argv[0]);
        waitpid(child, &status, 0);
        mark();
        printf("%s: %d\n", ways[i], status);
    }
    for (int i = COUNT_OF(ways); i < BLOCKS; i++)
        wrong += wrong_on_device(memory[i], i, SIZE);
    printf("the parent's data: wrong bytes %zu\n", wrong);
    RT(cudaMalloc(&memory[0], SIZE));
    for (int i = COUNT_OF(ways); i < BLOCKS; i++)
        RT(cudaFree(memory[i]));
    RT(cudaFree(memory[0]));
    return 0;
}
