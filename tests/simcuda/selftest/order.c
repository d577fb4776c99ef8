/* order.c — streams run on their own; what must be ordered is, and nothing else. */
#include "selftest.h"

#include <pthread.h>

#define KERNEL 80 /* ms a kernel runs */
#define QUICK 60  /* ms a call that does not wait for it may take on a busy machine */

static CUcontext ctx;
static CUdeviceptr block;

static CUstream stream(unsigned flags) {
    CUstream s = NULL;
    cuStreamCreate(&s, flags);
    return s;
}

/* KERNEL ms, then the byte becomes value. */
static void kernel(CUstream s, int value) {
    cuLaunchHostFunc(s, slow, (void *)KERNEL);
    cuMemsetD8Async(block, (unsigned char)value, 4096, s);
}

static void independence(void) {
    CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
    double t0 = now_ms();
    kernel(a, 1);
    check(now_ms() - t0 < QUICK, "launching does not wait");
    cuMemsetD8Async(block, 2, 4096, b);
    cuStreamSynchronize(b);
    check(now_ms() - t0 < QUICK, "another stream is not delayed");
    expect(cuStreamQuery(a), CUDA_ERROR_NOT_READY, "the first is busy");
    cuStreamSynchronize(a);
    check(byte_at(block) == 1, "and its write comes last");
    cuStreamDestroy(a);
    cuStreamDestroy(b);
}

static void legacy(void) {
    CUstream blocking = stream(0), apart = stream(CU_STREAM_NON_BLOCKING);
    kernel(blocking, 1);
    cuMemsetD8Async(block, 2, 4096, CU_STREAM_LEGACY);
    cuStreamSynchronize(CU_STREAM_LEGACY);
    check(byte_at(block) == 2, "the legacy stream waits for blocking streams");
    kernel(CU_STREAM_LEGACY, 1);
    cuMemsetD8Async(block, 2, 4096, blocking);
    cuCtxSynchronize();
    check(byte_at(block) == 2, "and blocking streams for it");
    kernel(CU_STREAM_PER_THREAD, 1);
    cuMemsetD8(block, 2, 4096);
    check(byte_at(block) == 2, "the per-thread stream is a blocking one");
    kernel(CU_STREAM_LEGACY, 1);
    cuMemsetD8Async(block, 2, 4096, apart);
    cuCtxSynchronize();
    check(byte_at(block) == 1, "non-blocking streams go their own way");
    unsigned long long l, p;
    cuStreamGetId(CU_STREAM_LEGACY, &l);
    cuStreamGetId(CU_STREAM_PER_THREAD, &p);
    check(l != p, "default streams have ids of their own");
    cuStreamDestroy(blocking);
    cuStreamDestroy(apart);
}

static void events(void) {
    CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
    CUevent e, first;
    float ms = 0;
    cuEventCreate(&e, 0);
    cuEventCreate(&first, 0);
    expect(cuEventQuery(e), CUDA_SUCCESS, "an event never recorded is done");
    cuEventRecord(first, a);
    kernel(a, 1);
    cuEventRecord(e, a);
    expect(cuEventQuery(e), CUDA_ERROR_NOT_READY, "a pending one is not");
    cuStreamWaitEvent(b, e, 0);
    cuMemsetD8Async(block, 2, 4096, b);
    cuStreamSynchronize(b);
    check(byte_at(block) == 2, "a stream waits for an event");
    cuEventElapsedTime(&ms, first, e);
    check(ms > KERNEL - 5 && ms < 500, "elapsed time");
    kernel(a, 1);
    cuEventRecord(e, a);
    cuStreamWaitEvent(b, e, 0);
    expect(cuEventDestroy(e), CUDA_SUCCESS, "destroying a pending event is legal");
    cuMemsetD8Async(block, 2, 4096, b);
    cuStreamSynchronize(b);
    check(byte_at(block) == 2, "and changes nothing");
    cuEventDestroy(first);
    cuStreamDestroy(a);
    cuStreamDestroy(b);
}

static void free_waits(const char *what, CUstream s) {
    CUdeviceptr d;
    cuMemAlloc(&d, 100);
    double t0 = now_ms();
    kernel(s, 1);
    CUdeviceptr other;
    cuMemAlloc(&other, 100);
    bool quick = now_ms() - t0 < QUICK;
    cuMemFree(d);
    check(quick && now_ms() - t0 > KERNEL - 2, what);
    cuMemFree(other);
}

static void *exited_thread(void *unused) {
    cuCtxSetCurrent(ctx);
    kernel(CU_STREAM_PER_THREAD, 1);
    return unused;
}

static void frees(void) {
    CUstream apart = stream(CU_STREAM_NON_BLOCKING), gone = stream(CU_STREAM_NON_BLOCKING);
    free_waits("cuMemFree waits for the legacy stream, cuMemAlloc does not", NULL);
    free_waits("… for a non-blocking stream", apart);
    free_waits("… for the per-thread stream", CU_STREAM_PER_THREAD);
    CUdeviceptr d;
    cuMemAlloc(&d, 100);
    double t0 = now_ms();
    kernel(gone, 1);
    cuStreamDestroy(gone);
    cuMemFree(d);
    check(now_ms() - t0 > KERNEL - 2, "… for the work of a destroyed stream");
    cuMemAlloc(&d, 100);
    pthread_t thread;
    t0 = now_ms();
    pthread_create(&thread, NULL, exited_thread, NULL);
    pthread_join(thread, NULL);
    cuMemFree(d);
    check(now_ms() - t0 > KERNEL - 2, "… for the per-thread stream of a thread that is gone");
    cuMemAllocAsync(&d, 100, apart);
    cuStreamSynchronize(apart);
    t0 = now_ms();
    kernel(apart, 1);
    cuMemFree(d);
    check(now_ms() - t0 < QUICK, "cuMemFree of pool memory waits for nothing");
    cuCtxSynchronize();
    CUcontext second;
    cuCtxCreate(&second, NULL, 0, 0);
    CUstream theirs = stream(CU_STREAM_NON_BLOCKING);
    cuCtxSetCurrent(ctx);
    cuMemAlloc(&d, 100);
    t0 = now_ms();
    cuLaunchHostFunc(theirs, slow, (void *)KERNEL);
    cuMemFree(d);
    check(now_ms() - t0 < QUICK, "nor does any free for another context");
    cuCtxDestroy(second);
    cuStreamDestroy(apart);
}

static void *freeing_thread(void *d) {
    cuMemFree((CUdeviceptr)(size_t)d);
    return NULL;
}

/* Natively a thread that is blocked in a free holds up other threads' launches. */
static void launch_behind_free(void) {
    CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr d;
    pthread_t thread;
    cuMemAlloc(&d, 100);
    double t0 = now_ms();
    kernel(a, 1);
    pthread_create(&thread, NULL, freeing_thread, (void *)(size_t)d);
    sleep_ms(KERNEL / 2);
    cuMemsetD8Async(block, 2, 4096, b);
    check(now_ms() - t0 > KERNEL - 2, "a launch queues up behind a free that waits");
    pthread_join(thread, NULL);
    cuStreamDestroy(a);
    cuStreamDestroy(b);
}

static void fence(void) {
    CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
    CUevent e, later;
    cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    cuEventCreate(&later, CU_EVENT_DISABLE_TIMING);
    kernel(a, 1);
    expect(cuCtxRecordEvent(ctx, e), CUDA_SUCCESS, "fence recorded");
    cuLaunchHostFunc(a, slow, (void *)400);
    expect(cuCtxWaitEvent(ctx, e), CUDA_SUCCESS, "fence waited for");
    expect(cuStreamQuery(b), CUDA_SUCCESS, "an idle stream stays idle");
    double t0 = now_ms();
    cuMemsetD8Async(block, 2, 4096, b);
    cuEventRecord(later, b);
    expect(cuEventQuery(later), CUDA_ERROR_NOT_READY, "later work waits");
    cuStreamSynchronize(b);
    check(byte_at(block) == 2, "for the earlier work");
    check(now_ms() - t0 < 300, "and not for what came after the record");
    cuCtxSynchronize();
    cuEventDestroy(e);
    cuEventDestroy(later);
    cuStreamDestroy(a);
    cuStreamDestroy(b);
}

/* FACTS' persistent kernel: s1 runs until s2 sets a flag; a fence recorded before s1's start must not hold s2 back. */
static void persistent(void) {
    CUstream s1 = stream(CU_STREAM_NON_BLOCKING), s2 = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr flag;
    CUevent e;
    cuMemAlloc(&flag, 4);
    cuMemsetD32(flag, 0, 1);
    cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    cuCtxRecordEvent(ctx, e);
    cuStreamWaitValue32(s1, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
    cuCtxWaitEvent(ctx, e);
    cuStreamWriteValue32(s2, flag, 1, 0);
    double t0 = now_ms();
    while (cuStreamQuery(s1) == CUDA_ERROR_NOT_READY && now_ms() - t0 < 2000)
        sleep_ms(1);
    expect(cuStreamQuery(s1), CUDA_SUCCESS, "recorded before the persistent kernel: runs");
    cuMemsetD32(flag, 0, 1);
    cuCtxSynchronize();
    cuStreamWaitValue32(s1, flag, 1, CU_STREAM_WAIT_VALUE_EQ);
    cuCtxRecordEvent(ctx, e);
    cuCtxWaitEvent(ctx, e);
    cuStreamWriteValue32(s2, flag, 1, 0);
    sleep_ms(50);
    expect(cuStreamQuery(s2), CUDA_ERROR_NOT_READY, "recorded after it: hangs");
    __atomic_store_n((unsigned *)flag, 1, __ATOMIC_RELEASE); /* from outside the device's order */
    cuCtxSynchronize();
    cuMemFree(flag);
    cuEventDestroy(e);
    cuStreamDestroy(s1);
    cuStreamDestroy(s2);
}

static void copies(void) {
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    static unsigned char page[100000];
    unsigned char *pinned;
    memset(page, 5, sizeof(page));
    CUdeviceptr big;
    cuMemAlloc(&big, sizeof(page));
    cuLaunchHostFunc(s, slow, (void *)KERNEL);
    cuMemcpyHtoDAsync(big, page, sizeof(page), s);
    memset(page, 6, sizeof(page));
    cuStreamSynchronize(s);
    check(byte_at(big + 99999) == 5, "a pageable source is staged");
    cuMemHostAlloc((void **)&pinned, sizeof(page), 0);
    memset(pinned, 5, sizeof(page));
    double t0 = now_ms();
    cuLaunchHostFunc(s, slow, (void *)KERNEL);
    cuMemcpyHtoDAsync(big, pinned, sizeof(page), s);
    check(now_ms() - t0 < QUICK, "a pinned source is not waited for");
    memset(pinned, 7, sizeof(page));
    cuStreamSynchronize(s);
    check(byte_at(big) == 7, "and read when the stream gets there");
    t0 = now_ms();
    cuLaunchHostFunc(s, slow, (void *)KERNEL);
    cuMemcpyDtoHAsync(page, big, sizeof(page), s);
    check(now_ms() - t0 > KERNEL - 2 && page[0] == 7, "a pageable destination is waited for");
    expect(cuMemsetD8(big, 0, sizeof(page) + 1), CUDA_ERROR_INVALID_VALUE, "a memset past the end is refused");
    cuMemFreeHost(pinned);
    cuMemFree(big);
    cuStreamDestroy(s);
}

static void refused(void *data) {
    *(CUresult *)data = cuMemFree(0);
}

static void many(void) {
    CUstream s[200];
    CUevent e;
    CUresult inside = CUDA_SUCCESS;
    cuEventCreate(&e, 0);
    double t0 = now_ms();
    for (int i = 0; i < 200; i++) {
        s[i] = stream(CU_STREAM_NON_BLOCKING);
        cuLaunchHostFunc(s[i], slow, (void *)50);
    }
    cuCtxRecordEvent(ctx, e);
    cuEventSynchronize(e);
    double t = now_ms() - t0;
    check(t > 48 && t < 3000, "200 streams at once, one fence for all");
    cuLaunchHostFunc(s[0], refused, &inside);
    cuStreamSynchronize(s[0]);
    expect(inside, CUDA_ERROR_NOT_PERMITTED, "host functions may not call the driver");
    for (int i = 0; i < 200; i++)
        cuStreamDestroy(s[i]);
    CUstream again = stream(0);
    check(again == s[199], "a freed handle is the next one given out");
    cuStreamDestroy(again);
    expect(cuStreamSynchronize(again), CUDA_ERROR_INVALID_HANDLE, "and stale until then");
    cuEventDestroy(e);
}

int main(void) {
    ctx = start(0);
    cuMemAlloc(&block, 4096);
    independence();
    legacy();
    events();
    frees();
    launch_behind_free();
    fence();
    persistent();
    copies();
    many();
    return finish();
}
