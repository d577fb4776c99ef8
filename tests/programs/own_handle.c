/*
 * What the program's own handle finds of CUDA: nothing as long as no driver is visible to the program, then the driver's functions, which allocate as
 * any others do.
 */
#include "program.h"
#include <cuda.h>
#include <dlfcn.h>

static void *self;

static void show(const char *when) {
    static const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress", "cuCtxCreate_v2", "cudaMalloc"};
    printf("%s:", when);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        printf(" %s %s", names[i], dlsym(self, names[i]) ? "found" : "none");
    printf("\n");
}

#define FIND(name) __typeof__(&name) found_##name = (__typeof__(&name))dlsym(self, NAME_OF(name))
#define NAME_OF(name) NAME_OF_(name)
#define NAME_OF_(name) #name

int main(void) {
    self = dlopen(NULL, RTLD_LAZY);
    show("no driver");
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        die("%s", dlerror());
    show("a driver of somebody else's");
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        die("%s", dlerror());
    show("a driver for all");
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuMemAlloc);
    FIND(cuMemFree);
    CUcontext context;
    CUdeviceptr memory;
    if (found_cuInit(0) || found_cuDevicePrimaryCtxRetain(&context, 0) || found_cuCtxSetCurrent(context))
        die("no context");
    int allocated = found_cuMemAlloc(&memory, 1000), freed = found_cuMemFree(memory);
    printf("allocated: %d, freed: %d\n", allocated, freed);
    printf("expect allocations=1 frees=1 live_blocks=0\n");
    return 0;
}
