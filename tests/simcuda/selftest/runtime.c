/*
 * runtime.c — the runtime on top: binding, last errors, reset, per-thread entry points. Built with the shared runtime,
 * with the static one, and with per-thread default streams.
 */
#include <cuda_runtime_api.h>

#include "selftest.h"

#include <pthread.h>

static void errors(void) {
    void *p = (void *)7;
    expect(cudaMalloc(&p, 0), cudaSuccess, "cudaMalloc of nothing succeeds");
    check(p == NULL, "… with NULL");
    expect(cudaFree(NULL), cudaSuccess, "cudaFree(NULL)");
    expect(cudaMalloc(NULL, 1), cudaErrorInvalidValue, "cudaMalloc without an out pointer");
    cudaGetLastError();
    p = (void *)7;
    expect(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation, "too much");
    check(p == NULL, "… is NULL");
    expect(cudaPeekAtLastError(), cudaErrorMemoryAllocation, "… and the last error");
    expect(cudaGetLastError(), cudaErrorMemoryAllocation, "… handed out");
    expect(cudaGetLastError(), cudaSuccess, "… once");
    expect(cudaFree((void *)0x1234), cudaErrorInvalidValue, "cudaFree of a stranger");
    cudaGetLastError();
}

static void *fresh_thread(void *unused) {
    void *p;
    int device = -1;
    expect(cudaMalloc(&p, 10), cudaSuccess, "a new thread binds the primary context");
    cudaGetDevice(&device);
    check(device == 0, "of device 0");
    cudaFree(p);
    return unused;
}

static void reset(void) {
    void *p;
    CUcontext before, after;
    cudaMalloc(&p, 100);
    cuCtxGetCurrent(&before);
    expect(cudaDeviceReset(), cudaSuccess, "cudaDeviceReset");
    expect(cudaFree(p), cudaErrorInvalidValue, "frees everything");
    cudaGetLastError();
    expect(cudaMalloc(&p, 100), cudaSuccess, "and life goes on");
    cuCtxGetCurrent(&after);
    check(before == after, "with the same context handle");
    cudaFree(p);
}

/* In a per-thread build stream 0 is the thread's own, which does not wait for other threads' streams. */
static void *their_kernel(void *unused) {
    cudaLaunchHostFunc(0, slow, (void *)150);
    return unused;
}

static void default_stream(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, their_kernel, NULL);
    pthread_join(thread, NULL);
    double t0 = now_ms();
    cudaStreamSynchronize(0);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    check(now_ms() - t0 < 100, "stream 0 is the thread's own");
#else
    check(now_ms() - t0 > 100, "stream 0 is everybody's");
#endif
    cudaDeviceSynchronize();
}

static void entry_points(void) {
    void *fn = NULL, *again = NULL;
    enum cudaDriverEntryPointQueryResult status;
    expect(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &fn, 11020, cudaEnableDefault, &status), cudaSuccess,
           "an entry point");
    void *expected = NULL;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    cuGetProcAddress("cuMemAllocAsync", &expected, 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
#else
    cuGetProcAddress("cuMemAllocAsync", &expected, 11020, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);
#endif
    check(fn && fn == expected && status == cudaDriverEntryPointSuccess, "of this build's default stream");
    expect(cudaGetDriverEntryPointByVersion("cuNothing", &again, 12000, cudaEnableDefault, &status), cudaSuccess,
           "no entry point");
    check(again == NULL && status == cudaDriverEntryPointSymbolNotFound, "is told by the status");
}

static void memory(void) {
    void *p, *managed;
    size_t pitch;
    struct cudaPitchedPtr volume;
    struct cudaPointerAttributes at;
    unsigned char rows[4][100], back[4][100];
    for (int i = 0; i < 4; i++)
        memset(rows[i], i + 1, 100);
    cudaMallocPitch(&p, &pitch, 100, 4);
    cudaMemcpy2D(p, pitch, rows, 100, 100, 4, cudaMemcpyHostToDevice);
    cudaMemcpy2D(back, 100, p, pitch, 100, 4, cudaMemcpyDeviceToHost);
    check(pitch == 512 && memcmp(rows, back, sizeof(rows)) == 0, "pitched copies");
    cudaPointerGetAttributes(&at, (char *)p + 5);
    check(at.type == cudaMemoryTypeDevice && at.device == 0, "device memory is known");
    cudaFree(p);
    cudaPointerGetAttributes(&at, rows);
    check(at.type == cudaMemoryTypeUnregistered && cudaPeekAtLastError() == cudaSuccess, "host memory is unregistered");
    cudaMallocManaged(&managed, 100, cudaMemAttachGlobal);
    cudaPointerGetAttributes(&at, managed);
    check(at.type == cudaMemoryTypeManaged, "managed memory is known");
    cudaFree(managed);
    expect(cudaMalloc3D(&volume, (struct cudaExtent){100, 7, 3}), cudaSuccess, "three dimensions");
    expect(cudaMemset((char *)volume.ptr + volume.pitch * 21 - 1, 0, 1), cudaSuccess, "… whole");
    cudaFree(volume.ptr);
}

int main(void) {
    errors();
    pthread_t thread;
    pthread_create(&thread, NULL, fresh_thread, NULL);
    pthread_join(thread, NULL);
    reset();
    default_stream();
    entry_points();
    memory();
    return finish();
}
