/* codes.c — the return codes, addresses and queries of memory calls are the driver's. */
#include "selftest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

static void sizes(void) {
    CUdeviceptr d = 7;
    size_t pitch = 0;
    expect(cuMemAlloc(&d, 0), CUDA_ERROR_INVALID_VALUE, "cuMemAlloc of nothing is invalid");
    check(d == 0, "… and gives 0");
    d = 7;
    expect(cuMemAllocManaged(&d, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE, "cuMemAllocManaged of nothing");
    check(d == 0, "… gives 0");
    d = 7;
    expect(cuMemAllocAsync(&d, 0, NULL), CUDA_SUCCESS, "cuMemAllocAsync of nothing succeeds");
    check(d == 0, "… with 0");
    expect(cuMemFree(0), CUDA_SUCCESS, "cuMemFree(0)");
    expect(cuMemFreeAsync(0, NULL), CUDA_SUCCESS, "cuMemFreeAsync(0)");
    expect(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE, "cuMemAlloc without an out pointer");
    const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 511, (size_t)1 << 60, (size_t)1 << 48, (size_t)17 << 30};
    bool all = true;
    for (size_t i = 0; i < 5; i++) {
        d = 7;
        all &= cuMemAlloc(&d, absurd[i]) == CUDA_ERROR_OUT_OF_MEMORY && d == 0;
    }
    check(all, "absurd sizes are out of memory, with 0");
    expect(cuMemAllocPitch(&d, &pitch, 100, 10, 4), CUDA_SUCCESS, "pitched");
    check(pitch == 512, "pitch 512 for 100 bytes");
    cuMemFree(d);
    expect(cuMemAllocPitch(&d, &pitch, 513, 10, 16), CUDA_SUCCESS, "pitched again");
    check(pitch == 1024, "pitch 1024 for 513 bytes");
    cuMemFree(d);
    expect(cuMemAllocPitch(&d, &pitch, 100, 10, 3), CUDA_ERROR_INVALID_VALUE, "element size 3");
    expect(cuMemAllocPitch(&d, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE, "width 0");
    check(pitch == 0, "… gives pitch 0");
    expect(cuMemAllocPitch(&d, &pitch, (size_t)1 << 32, (size_t)1 << 32, 4), CUDA_ERROR_INVALID_VALUE,
           "what wraps around to nothing is invalid");
    expect(cuMemAllocPitch(&d, &pitch, 100, SIZE_MAX, 4), CUDA_ERROR_OUT_OF_MEMORY, "what wraps around to more is out of memory");
}

static void frees(void) {
    CUdeviceptr d, m, a;
    cuMemAlloc(&d, 4096);
    expect(cuMemFree(d + 512), CUDA_ERROR_INVALID_VALUE, "cuMemFree of an interior pointer");
    expect(cuMemFree(0x1234), CUDA_ERROR_INVALID_VALUE, "cuMemFree of a stranger");
    expect(cuMemFree(d), CUDA_SUCCESS, "cuMemFree");
    expect(cuMemFree(d), CUDA_ERROR_INVALID_VALUE, "cuMemFree twice");
    cuMemAllocAsync(&a, 4096, NULL);
    expect(cuMemFreeAsync(a + 512, NULL), CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync of an interior pointer");
    expect(cuMemFreeAsync(a, NULL), CUDA_SUCCESS, "cuMemFreeAsync");
    expect(cuMemFreeAsync(a, NULL), CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync twice");
    cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL);
    expect(cuMemFreeAsync(m, NULL), CUDA_ERROR_NOT_SUPPORTED, "cuMemFreeAsync of managed memory");
    expect(cuMemFree(m), CUDA_SUCCESS, "cuMemFree of managed memory");
    cuMemAlloc(&d, 4096);
    expect(cuMemFreeAsync(d, NULL), CUDA_SUCCESS, "cuMemFreeAsync of synchronous memory");
    expect(cuMemFree(d), CUDA_ERROR_INVALID_VALUE, "… which is then gone");
    cuMemAllocAsync(&a, 4096, NULL);
    expect(cuMemFree(a), CUDA_SUCCESS, "cuMemFree of pool memory");
    expect(cuMemFreeAsync(0x1000, (CUstream)0x123450), CUDA_ERROR_INVALID_HANDLE, "a stream that is none");
}

static void addresses(void) {
    CUdeviceptr a, b, base;
    size_t free0, free1, total, size;
    cuMemGetInfo(&free0, &total);
    cuMemAlloc(&a, 1);
    cuMemGetInfo(&free1, &total);
    check(free0 - free1 == (size_t)2 << 20, "one byte takes a 2 MiB page");
    cuMemAlloc(&b, 257);
    check(b - a == 512 && a % 512 == 0, "small ones lie 512 bytes apart");
    expect(cuMemGetAddressRange(&base, &size, b + 100), CUDA_SUCCESS, "address range of an interior pointer");
    check(base == b && size == 257, "… is the allocation as asked for");
    expect(cuMemGetAddressRange(&base, &size, b + 257), CUDA_ERROR_NOT_FOUND, "… and ends there");
    unsigned long long id_a = 0, id_b = 0;
    cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
    cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b + 3);
    check(id_a && id_b && id_a != id_b, "buffer ids differ");
    cuMemFree(a);
    CUdeviceptr again;
    cuMemAlloc(&again, 100);
    check(again == a, "a freed address is the next one given out");
    cuMemFree(again);
    cuMemFree(b);
    cuMemGetInfo(&free1, &total);
    check(free0 == free1, "everything comes back");
}

static void *without_context(void *arg) {
    CUdeviceptr *d = arg, e = 7;
    expect(cuMemAlloc(&e, 100), CUDA_ERROR_INVALID_CONTEXT, "cuMemAlloc without a context");
    expect(cuMemFree(*d), CUDA_SUCCESS, "cuMemFree without a context");
    size_t f, t;
    expect(cuMemGetInfo(&f, &t), CUDA_ERROR_INVALID_CONTEXT, "cuMemGetInfo without a context");
    return NULL;
}

static void contexts(CUcontext primary) {
    CUdeviceptr d, none;
    unsigned long long before, after;
    pthread_t thread;
    cuMemAlloc(&d, 100);
    pthread_create(&thread, NULL, without_context, &d);
    pthread_join(thread, NULL);
    cuMemAlloc(&d, 100);
    cuCtxGetId(primary, &before);
    expect(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS, "reset");
    expect(cuMemAlloc(&none, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED, "the reset context is unusable");
    CUcontext again;
    cuDevicePrimaryCtxRetain(&again, 0);
    cuCtxGetId(primary, &after);
    check(again == primary && after != before, "retained again: same handle, new id");
    expect(cuMemFree(d), CUDA_ERROR_INVALID_VALUE, "what was allocated before the reset is gone");
    CUcontext own, current;
    expect(cuCtxCreate(&own, NULL, 0, 0), CUDA_SUCCESS, "a context of our own");
    cuMemAlloc(&d, 100);
    expect(cuCtxDestroy(own), CUDA_SUCCESS, "… destroyed");
    cuCtxGetCurrent(&current);
    check(current == primary, "… is no longer current");
    expect(cuMemFree(d), CUDA_ERROR_INVALID_VALUE, "… and took its memory along");
    expect(cuCtxSetCurrent(own), CUDA_ERROR_INVALID_CONTEXT, "… and is no context any more");
}

static void child(void) {
    CUdeviceptr d;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuMemAlloc(&d, 1) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    int status = 1;
    waitpid(pid, &status, 0);
    check(status == 0, "a forked child is not initialised");
}

static void sticky(CUcontext ctx) {
    CUresult (*fault)(CUcontext) = NULL;
    *(void **)&fault = dlsym(RTLD_DEFAULT, "simcuda_fault");
    CUdeviceptr d, e;
    CUevent event;
    cuMemAlloc(&d, 1);
    check(fault && fault(ctx) == CUDA_SUCCESS, "a fault on request");
    expect(cuMemAlloc(&e, 1), CUDA_ERROR_ILLEGAL_ADDRESS, "sticky: cuMemAlloc");
    expect(cuMemFree(d), CUDA_ERROR_ILLEGAL_ADDRESS, "sticky: cuMemFree");
    expect(cuEventCreate(&event, 0), CUDA_ERROR_ILLEGAL_ADDRESS, "sticky: cuEventCreate");
}

int main(void) {
    CUdeviceptr d;
    expect(cuMemAlloc(&d, 1), CUDA_ERROR_NOT_INITIALIZED, "nothing works before cuInit");
    CUcontext ctx = start(0);
    sizes();
    frees();
    addresses();
    contexts(ctx);
    child();
    sticky(ctx);
    return finish();
}
