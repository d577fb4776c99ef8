// kernel_fault.cu — a kernel faults, and the program goes on allocating and freeing. The first call that comes upon
// the fault says it, and from then on every call does. A cache need not call the driver for each block, so it may be a
// little later than the bare driver, but it must be soon, whatever the program looks at.
// Arguments: the fault (wild, assert, trap, misaligned), what the program does (see ways).

#include "check.cuh"

#include <cassert>
#include <cuda.h>
#include <cstring>
#include <unistd.h>

enum { SOON = 200 /* rounds */ };
static const size_t KIB = 1024, MIB = KIB * KIB;

__global__ static void touch(int *p) {
    *p = 1;
}

__global__ static void claim(int x) {
    assert(x == 0);
}

__global__ static void stop() {
    asm("trap;");
}

static cudaStream_t stream;

static cudaError_t small_allocations() {
    void *p;
    cudaError_t result = cudaMalloc(&p, 64 * KIB);
    if (result == cudaSuccess)
        cudaFree(p);
    return result;
}

static cudaError_t small_frees() {
    void *p = nullptr;
    cudaMalloc(&p, 64 * KIB);
    return cudaFree(p);
}

static cudaError_t large_allocations() {
    void *p;
    cudaError_t result = cudaMalloc(&p, 8 * MIB);
    if (result == cudaSuccess)
        cudaFree(p);
    return result;
}

static cudaError_t one_stream() {
    void *p;
    cudaError_t result = cudaMallocAsync(&p, 64 * KIB, stream);
    if (result == cudaSuccess)
        cudaFreeAsync(p, stream);
    return result;
}

static cudaError_t freed_by_cudaFree() {
    void *p;
    cudaError_t result = cudaMallocAsync(&p, 64 * KIB, stream);
    if (result == cudaSuccess)
        cudaFree(p);
    return result;
}

static const struct {
    const char *name;
    cudaError_t (*round)();
} ways[] = {
    {"allocations", small_allocations}, {"frees", small_frees}, {"large", large_allocations},
    {"stream", one_stream},             {"crossed", freed_by_cudaFree},
};

static cudaError_t fault(const char *name, char *memory) {
    if (strcmp(name, "wild") == 0) {
        touch<<<1, 1>>>((int *)0x10);
        return cudaErrorIllegalAddress;
    } else if (strcmp(name, "assert") == 0) {
        claim<<<1, 1>>>(1);
        return cudaErrorAssert;
    } else if (strcmp(name, "trap") == 0) {
        stop<<<1, 1>>>();
        return cudaErrorLaunchFailure;
    }
    touch<<<1, 1>>>((int *)(memory + 1));
    return cudaErrorMisalignedAddress;
}

/* How long the device takes to notice depends on what else runs there. Asked through the driver, so that the runtime learns nothing. */
static void await_fault(void *query) {
    for (int i = 0; i < 10000 && ((CUresult(*)(CUstream))query)(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY; i++)
        usleep(1000);
}

static const char *yes_no(bool answer) {
    return answer ? "yes" : "no";
}

int main(int argc, char **argv) {
    void *live[4], *query, *p = (void *)7;
    cudaDriverEntryPointQueryResult found;
    cudaError_t expected, result = cudaSuccess;
    if (argc < 3)
        return 2;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaGetDriverEntryPointByVersion("cuStreamQuery", &query, 12000, cudaEnableDefault, &found));
    for (int i = 0; i < 4; i++)
        CHECK(i == 2 ? cudaMallocAsync(&live[i], 4096, stream) : cudaMalloc(&live[i], 64 * KIB));
    for (auto &way : ways)
        CHECK(way.round());
    CHECK(cudaDeviceSynchronize());
    expected = fault(argv[1], (char *)live[0]);
    await_fault(query);
    for (auto &way : ways)
        for (int i = 0; i < SOON && result == cudaSuccess && strcmp(way.name, argv[2]) == 0; i++)
            result = way.round();
    if (result != expected)
        fprintf(stderr, "said: %d, then %d\n", result, cudaDeviceSynchronize());
    printf("%s, %s: said soon: %s\n", argv[1], argv[2], yes_no(result == expected));
    bool same = cudaMalloc(&p, 4096) == expected && !p && cudaMalloc(&p, 64 * MIB) == expected;
    same &= cudaMallocAsync(&p, 4096, stream) == expected;
    same &= cudaFree(live[0]) == expected && cudaFree(live[0]) == expected && cudaFree((void *)0x1234) == expected;
    same &= cudaFreeAsync(live[1], stream) == expected && cudaFree(live[2]) == expected;
    same &= cudaFree(live[3]) == expected && cudaDeviceSynchronize() == expected;
    printf("said by every call from then on: %s\n", yes_no(same));
    cudaGetLastError();
    printf("kept as the last error once: %s\n", yes_no(cudaMalloc(&p, 4096) == expected && cudaGetLastError() == expected && cudaGetLastError() == cudaSuccess));
    return 0;
}
