/*
 * A program forks while its threads allocate, and the children load a library: nobody but the program's own threads may be inside
 * the loader at that moment, as the C library does not free the lock of its list of libraries in a child. Our dl_iterate_phdr
 * stays in there for a while, so that whoever walks the list is found there. Arguments: the library, how many forks.
 */
#include "runtime.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>

#define CHURNERS 4
#define SIZE (64 * KIB)

#ifndef SANITIZED /* their runtimes walk the list themselves, before code of a program can run */
struct walk {
    int (*visit)(struct dl_phdr_info *, size_t, void *);
    void *data;
};

static int visit_slowly(struct dl_phdr_info *info, size_t size, void *data) {
    struct walk *walk = data;
    usleep(1000);
    return walk->visit(info, size, walk->data);
}

int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *data) {
    struct walk walk = {visit, data};
    int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *) =
        (int (*)(int (*)(struct dl_phdr_info *, size_t, void *), void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return next(visit_slowly, &walk);
}
#endif

static bool stop;

int main(int argc, char **argv) {
    int forks = argc > 2 ? atoi(argv[2]) : 20, loaded = 0, hung = 0;
    pthread_t threads[CHURNERS];
    void *memory;
    RT(cudaMalloc(&memory, SIZE));
    for (int i = 0; i < CHURNERS; i++)
        start_thread(&threads[i], allocate_until, &stop);
    for (int i = 0; i < forks && hung == 0; i++) {
        int status;
        sleep_ms(3);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(15);
            _exit(dlopen(argv[1], RTLD_NOW) ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        loaded += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        hung += WIFSIGNALED(status);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    RT(cudaFree(memory));
    printf("children: %d, loaded their library %d, hung %d\n", forks, loaded, hung);
    return 0;
}
