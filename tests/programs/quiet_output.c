/*
 * Writes every byte value to stdout around all kinds of CUDA calls, failing ones too: what a pipe behind the program must receive
 * unchanged. Argument: a library to open with RTLD_DEEPBIND in between, of which there is something to say at the highest level.
 */
#include "runtime.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    void *memory, *ordered;
#ifdef SANITIZED /* they forbid the flag */
    argc = 0;
#endif
    for (int i = 0; i < 256; i++)
        putchar(i);
    RT(cudaMalloc(&memory, 1 * MIB));
    RT(cudaMallocAsync(&ordered, 1 * MIB, 0));
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND))
        die("%s", dlerror());
    cudaFree((void *)0x1234);
    cudaMalloc(&(void *){NULL}, (size_t)1 << 50);
    cudaGetLastError();
    for (int i = 255; i >= 0; i--)
        putchar(i);
    RT(cudaFreeAsync(ordered, 0));
    RT(cudaFree(memory));
    RT(cudaDeviceSynchronize());
    return fflush(stdout) != 0;
}
