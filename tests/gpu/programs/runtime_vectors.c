/*
 * runtime_vectors.c — sums of vectors with whatever runtime it was built for: cudart 11, 12 or 13, whose headers and libraries are
 * all that it needs. Two threads allocate in every way around kernels on several streams and free at once what the kernels still
 * use. The kernel comes as PTX through the driver, as nvcc's own launch code belongs to one runtime. The argument is the version
 * that the runtime must have (11, 12, 13), so that nobody tests another one.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check((int)(call), #call, __LINE__)
enum { THREADS = 2, STREAMS = 4, ROUNDS = 400, BLOCK = 256 };

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry mix(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 n)\n{\n"
                          ".reg .pred %p<2>;\n.reg .b32 %r<12>;\n.reg .b64 %d<10>;\n"
                          "ld.param.u64 %d1, [out];\nld.param.u64 %d2, [a];\nld.param.u64 %d3, [b];\nld.param.u32 %r1, [n];\n"
                          "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.s32 %r5, %r2, %r3, %r4;\n"
                          "setp.ge.u32 %p1, %r5, %r1;\n@%p1 bra END;\n"
                          "cvta.to.global.u64 %d1, %d1;\ncvta.to.global.u64 %d2, %d2;\ncvta.to.global.u64 %d3, %d3;\n"
                          "mul.wide.u32 %d4, %r5, 4;\nadd.s64 %d5, %d2, %d4;\nadd.s64 %d6, %d3, %d4;\nadd.s64 %d7, %d1, %d4;\n"
                          "ld.global.u32 %r6, [%d5];\nld.global.u32 %r7, [%d6];\nmad.lo.s32 %r8, %r6, 3, %r7;\nadd.s32 %r9, %r8, %r5;\n"
                          "st.global.u32 [%d7], %r9;\nEND:\nret;\n}\n";

static CUresult (*load)(CUmodule *, const void *);
static CUresult (*function)(CUfunction *, CUmodule, const char *);
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
static CUfunction mix;

static void check(int result, const char *call, int line) {
    if (result == 0)
        return;
    fflush(stdout);
    fprintf(stderr, "runtime_vectors.c:%d: %s: error %d\n", line, call, result);
    _Exit(2);
}

static void *take(int how, size_t size, cudaStream_t stream) {
    struct cudaPitchedPtr pitched;
    void *memory = NULL;
    size_t pitch;

    switch (how % 5) {
    case 0:
        CHECK(cudaMalloc(&memory, size));
        return memory;
    case 1:
        CHECK(cudaMallocAsync(&memory, size, stream));
        return memory;
    case 2:
        CHECK(cudaMallocPitch(&memory, &pitch, size, 1));
        return memory;
    case 3:
        CHECK(cudaMalloc3D(&pitched, (struct cudaExtent){size, 1, 1}));
        return pitched.ptr;
    default:
        CHECK(cudaMallocManaged(&memory, size, cudaMemAttachGlobal));
        return memory;
    }
}

/*
 * Managed memory has no stream-ordered free; every other kind has both, but cudaFree of stream-ordered memory waits for nothing, so what is in use
 * must be freed in its stream.
 */
static void give(int how, int round, void *memory, cudaStream_t stream, bool in_use) {
    bool managed = how % 5 == 4, stream_ordered = how % 5 == 1;

    if (!managed && (round % 2 || (stream_ordered && in_use)))
        CHECK(cudaFreeAsync(memory, stream));
    else
        CHECK(cudaFree(memory));
}

static void *work(void *arg) {
    unsigned thread = (unsigned)(uintptr_t)arg;
    cudaStream_t streams[STREAMS] = {0};
    uint64_t sum = 0;

    CHECK(cudaSetDevice(0));
    for (int i = 1; i < STREAMS; i++)
        CHECK(cudaStreamCreateWithFlags(&streams[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (int round = 0; round < ROUNDS; round++) {
        unsigned n = 1000 + (unsigned)(round * 7919 + (int)thread * 104729) % 300000;
        cudaStream_t stream = streams[round % STREAMS];
        size_t size = n * sizeof(uint32_t);
        int how = round + (int)thread;
        CUdeviceptr out = (CUdeviceptr)take(how, size, stream), a = (CUdeviceptr)take(how + 1, size, stream),
                    b = (CUdeviceptr)take(how + 2, size, stream);
        void *arguments[] = {&out, &a, &b, &n};
        uint32_t *copy = malloc(size);

        CHECK(cudaMemsetAsync((void *)a, round & 0xff, size, stream));
        CHECK(cudaMemsetAsync((void *)b, 0x11, size, stream));
        CHECK(launch(mix, (n + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, (CUstream)stream, arguments, NULL));
        give(how + 1, round, (void *)a, stream, true);
        give(how + 2, round, (void *)b, stream, true);
        CHECK(cudaMemcpyAsync(copy, (void *)out, size, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; i++) {
            uint32_t right = (uint32_t)(round & 0xff) * 0x01010101u * 3 + 0x11111111u + i;

            sum = sum * 31 + copy[i];
            if (copy[i] != right)
                check(1, "wrong sum", __LINE__);
        }
        give(how, round, (void *)out, stream, false);
        free(copy);
    }
    for (int i = 1; i < STREAMS; i++)
        CHECK(cudaStreamDestroy(streams[i]));
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    pthread_t threads[THREADS];
    CUmodule module;
    int version = 0;

    CHECK(!driver);
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&function = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    CHECK(!load || !function || !launch);
    CHECK(cudaRuntimeGetVersion(&version));
    CHECK(argc < 2 || atoi(argv[1]) != version / 1000);
    CHECK(cudaFree(0));
    CHECK(load(&module, ptx));
    CHECK(function(&mix, module, "mix"));
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        void *sum;

        CHECK(pthread_join(threads[i], &sum));
        printf("runtime %d, thread %d: %016llx\n", version / 1000, i, (unsigned long long)(uintptr_t)sum);
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
