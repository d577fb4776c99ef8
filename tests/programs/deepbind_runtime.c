/*
 * The runtime itself was first opened with RTLD_DEEPBIND, so its driver calls are past every preload, but not those of the program that calls it:
 * memory allocated by a plugin's cudaMalloc can be freed by the runtime's own cudaFree. Arguments: the runtime's name, a plugin that needs it.
 */
#include "driver.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>

int main(int argc, char **argv) {
#ifdef SANITIZED
    skip("sanitizers forbid RTLD_DEEPBIND");
#endif
    if (argc < 3)
        die("which runtime, which plugin?");
    use_primary(0); /* seen by the shim */
    void *runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *plugin = runtime ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!plugin)
        die("%s", dlerror());
    cudaError_t (*allocate)(void **, size_t) = (cudaError_t(*)(void **, size_t))dlsym(plugin, "plugin_alloc");
    cudaError_t (*release)(void *) = (cudaError_t(*)(void *))dlsym(runtime, "cudaFree");
    for (int i = 0; i < 4; i++) {
        void *memory = NULL;
        int allocated = allocate(&memory, MIB), released = release(memory);
        printf("%d: allocated %d, freed by the runtime itself %d\n", i, allocated, released);
    }
    return 0;
}
