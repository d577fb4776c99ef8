/*
 * A program with live and freed memory forks: every call of the child, made straight to the driver, is refused as not
 * initialised, though a cache could serve it; the parent goes on.
 */
#include "driver.h"
#include <sys/wait.h>

#define SIZE (64 * KIB)

static void child(CUdeviceptr live) {
    CUdeviceptr memory = 0;
    size_t available, total, pitch;
    alarm(5);
    printf("cuMemAlloc: %d\n", (int)cuMemAlloc(&memory, SIZE));
    printf("cuMemAllocPitch: %d\n", (int)cuMemAllocPitch(&memory, &pitch, 1000, 64, 4));
    printf("cuMemAllocAsync: %d\n", (int)cuMemAllocAsync(&memory, SIZE, 0));
    printf("cuMemFreeAsync: %d\n", (int)cuMemFreeAsync(live, 0));
    printf("cuMemFree: %d\n", (int)cuMemFree(live));
    printf("cuMemGetInfo: %d\n", (int)cuMemGetInfo(&available, &total));
    exit(0);
}

int main(void) {
    CUdeviceptr live, freed;
    int status = -1;
    use_primary(0);
    CU(cuMemAlloc(&live, SIZE));
    CU(cuMemsetD8(live, 0x33, SIZE));
    CU(cuMemAlloc(&freed, SIZE));
    CU(cuMemFree(freed));
    CU(cuCtxSynchronize());
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        child(live);
    waitpid(pid, &status, 0);
    printf("child ended by itself: %s\n", yes_no(WIFEXITED(status) && WEXITSTATUS(status) == 0));
    printf("parent's data: wrong bytes %zu\n", wrong_on_device(live, 0x33, SIZE));
    CU(cuMemFree(live));
    return 0;
}
