/*
 * A program that used CUDA forks while another thread of its own walks the loader's list of libraries, as one does that throws a
 * C++ exception. The C library does not free that list's lock in the child, where the thread is not; natively the child's
 * cudaMalloc does not need it.
 */
#include "runtime.h"

#include <link.h>
#include <sys/wait.h>

static int inside[2], leave[2];

static int stay(struct dl_phdr_info *info, size_t size, void *unused) {
    char byte;

    (void)info, (void)size, (void)unused;
    return write(inside[1], "i", 1) == 1 && read(leave[0], &byte, 1) == 1;
}

static void *walk(void *unused) {
    dl_iterate_phdr(stay, unused);
    return NULL;
}

int main(void) {
    char byte;
    pthread_t thread;
    void *memory;
    int status;

    RT(cudaMalloc(&memory, KIB));
    if (pipe(inside) != 0 || pipe(leave) != 0)
        die("no pipe");
    start_thread(&thread, walk, NULL);
    if (read(inside[0], &byte, 1) != 1)
        die("the thread did not get there");
    pid_t child = fork();
    if (child == 0) {
        alarm(15);
        bool refused = cudaMalloc(&memory, KIB) == cudaErrorInitializationError && cudaFree(memory) != cudaSuccess;
        _exit(!refused);
    }
    waitpid(child, &status, 0);
    printf("the child ended by itself, and was refused: %s\n", yes_no(WIFEXITED(status) && WEXITSTATUS(status) == 0));
    if (write(leave[1], "l", 1) != 1)
        die("no pipe");
    pthread_join(thread, NULL);
    RT(cudaFree(memory));
    return 0;
}
