/*
 * Kernels on several streams, each with an allocation before and a free behind it, against the same kernels on memory that stays.
 * Needs a module with the kernel `spin` ($BENCH_MODULE, from tests/gpu/programs/spin.cu), and so a GPU.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { SPIN_CYCLES = 9000 }; /* about 5 µs on an H200 */

/* Looked up, because the simulated driver has no modules. */
static struct {
    CUresult (*load)(CUmodule *, const char *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                       void **);
    CUfunction spin;
} gpu;

static const char *load_kernel(void) {
    const char *path = getenv("BENCH_MODULE");
    CUmodule module;
    if (gpu.spin)
        return NULL;
    *(void **)&gpu.load = dlsym(RTLD_DEFAULT, "cuModuleLoad");
    *(void **)&gpu.function = dlsym(RTLD_DEFAULT, "cuModuleGetFunction");
    *(void **)&gpu.launch = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    if (!gpu.load || !gpu.function || !gpu.launch || !path)
        return "no kernels here";
    if (gpu.load(&module, path) != CUDA_SUCCESS || gpu.function(&gpu.spin, module, "spin") != CUDA_SUCCESS)
        return "the kernel does not load";
    return NULL;
}

static bool spin(void *block, CUstream stream) {
    long long cycles = SPIN_CYCLES;
    void *arguments[] = {&block, &cycles};
    return gpu.launch(gpu.spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL) == CUDA_SUCCESS;
}

/* One kernel on a block of its own. Adds what the host spent in the allocator to *spent; NULL: nobody looks at the clock. */
static bool kernel_with_memory(const struct bench_allocator *a, size_t size, CUstream stream, double *spent) {
    double before = spent ? bench_now() : 0;
    void *block = a->alloc(size, stream);
    bool launched;

    if (spent)
        *spent += bench_now() - before;
    launched = block && spin(block, stream);
    if (!block)
        return false;
    before = spent ? bench_now() : 0;
    a->free(block, size, stream);
    if (spent)
        *spent += bench_now() - before;
    return launched;
}

/* Seconds for `count` kernels to be done; a: NULL for kernels alone, on memory that stays. Negative: something failed. */
static double run_kernels(const struct bench_allocator *a, int count, int streams, size_t size, void *kept, double *spent) {
    double start;

    cuCtxSynchronize();
    start = bench_now();
    for (int i = 0; i < count; i++) {
        CUstream stream = bench_stream(i % streams);

        if (!(a ? kernel_with_memory(a, size, stream, spent) : spin(kept, stream)))
            return -1;
    }
    return cuCtxSynchronize() == CUDA_SUCCESS ? bench_now() - start : -1;
}

/* kernels STREAMS SIZE COUNT: ns= per kernel with allocation and free, alone= without; host= what the calls themselves took, in runs of their own, as to look
 * at the clock takes its time, too. */
static const char *kernels(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    int streams = (int)arguments->number[0], count = (int)arguments->number[2];
    size_t size = (size_t)arguments->number[1];
    double alone = 0, with = 0, watched = 0, host = 0;
    void *kept;
    const char *why = load_kernel();

    if (why)
        return why;
    if (streams < 1 || streams > BENCH_STREAMS)
        return "too many streams";
    kept = a->alloc(size, NULL);
    if (!kept)
        return "no memory";
    cuCtxSynchronize();
    for (int warm = 0; warm < 2 && alone >= 0 && with >= 0 && watched >= 0; warm++) {
        int runs = warm ? count : count / 4;

        alone = run_kernels(NULL, runs, streams, size, kept, NULL);
        with = run_kernels(a, runs, streams, size, NULL, NULL);
        host = 0;
        watched = run_kernels(a, runs, streams, size, NULL, &host);
    }
    a->free(kept, size, NULL);
    if (alone < 0 || with < 0 || watched < 0)
        return "a kernel or its memory failed";
    printf("ns=%.1f alone=%.1f host=%.1f", with * 1e9 / count, alone * 1e9 / count, host * 1e9 / count);
    return NULL;
}

const struct bench_pattern bench_kernels_patterns[] = {{"kernels", kernels}, {0}};
