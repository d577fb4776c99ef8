/*
 * cudaFree(NULL) is how programs make the runtime start: the first call of a process, perhaps after cudaSetDevice, or of a
 * thread. Says which primary contexts are active, and whether one is current.
 *
 *     first_call DEVICE      0: without cudaSetDevice
 */
#include "runtime.h"

#include <cuda.h>

static void *driver_function(const char *name) {
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    RT(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    return function;
}

static bool bound(void) {
    CUresult (*get_current)(CUcontext *);
    CUcontext current = NULL;

    *(void **)&get_current = driver_function("cuCtxGetCurrent");
    return get_current(&current) == CUDA_SUCCESS && current;
}

static void *in_a_thread(void *unused) {
    (void)unused;
    printf("a thread: bound %s, ", yes_no(bound()));
    printf("cudaFree(NULL): %s, ", cudaGetErrorName(cudaFree(NULL)));
    printf("bound %s\n", yes_no(bound()));
    return NULL;
}

int main(int argc, char **argv) {
    CUresult (*get_state)(CUdevice, unsigned *, int *);
    int device = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;

    if (device)
        RT(cudaSetDevice(device));
    printf("cudaFree(NULL): %s\n", cudaGetErrorName(cudaFree(NULL)));
    *(void **)&get_state = driver_function("cuDevicePrimaryCtxGetState");
    for (int i = 0; i < device_count(); i++) {
        unsigned flags;
        int active = -1;

        get_state(i, &flags, &active);
        printf("primary context %d: active %d\n", i, active);
    }
    printf("bound: %s\n", yes_no(bound()));
    start_thread(&thread, in_a_thread, NULL);
    pthread_join(thread, NULL);
    return 0;
}
