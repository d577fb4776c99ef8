/*
 * Starts many programs from several threads at once, by posix_spawn, vfork and fork in turn, while another thread allocates. The child of a vfork shares
 * the parent's memory and locks until it execs. Arguments: how many starts per thread, then a command line.
 */
#include "runtime.h"
#include <spawn.h>
#include <sys/wait.h>

enum { THREADS = 4 };

extern char **environ;
static int rounds;
static char **command;
static _Atomic int bad, started, stop;

static pid_t start(int way) {
    pid_t child = -1;
    if (way == 0)
        return posix_spawnp(&child, command[0], NULL, NULL, command, environ) == 0 ? child : -1;
    child = way == 1 ? vfork() : fork();
    if (child == 0) {
        execvp(command[0], command);
        _exit(126);
    }
    return child;
}

static void *spawn(void *argument) {
    for (int i = 0; i < rounds; i++) {
        int status = -1;
        pid_t child = start((i + (int)(intptr_t)argument) % 3);
        started++;
        bad += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    return NULL;
}

static void *churn(void *argument) {
    (void)argument;
    while (!stop) {
        void *memory;
        RT(cudaMalloc(&memory, 64 * KIB));
        RT(cudaFree(memory));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS], churner;
    if (argc < 3)
        die("how many of what?");
    rounds = atoi(argv[1]);
    command = argv + 2;
    RT(cudaFree(NULL));
    start_thread(&churner, churn, NULL);
    for (intptr_t i = 0; i < THREADS; i++)
        start_thread(&threads[i], spawn, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    stop = 1;
    pthread_join(churner, NULL);
    printf("started %d, failed %d\n", started, bad);
    return 0;
}
