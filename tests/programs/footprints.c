/*
 * Patterns that must not make memory grow without end: each keeps at most a few MiB live and goes on for many times that. The argument names one; "ahead",
 * "handoff", "across", "steps", "short", "sawtooth", "growing", "phases". The host never waits in between, unless the pattern says so.
 * Prints what is live at most, in MiB, and "done"; what was reserved is for the statistics to say.
 * "independent" behind it: the default pool may not make one stream wait for another.
 * "idle": 64 blocks of a MiB, all freed; "some": the same, but for one of them; "again": after more than a second, a block more.
 */
#include "driver.h"

enum { RING = 16 };

static void free_now(CUdeviceptr *block) {
    if (*block)
        CU(cuMemFree(*block));
    *block = 0;
}

/* The device is some milliseconds behind, always. 16 MiB live. */
static void ahead(void) {
    CUdeviceptr ring[RING] = {0};
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 400; i++) {
        free_now(&ring[i % RING]);
        CU(cuMemAlloc(&ring[i % RING], MIB));
        slow_fill(ring[i % RING], i, 512, stream, 1);
    }
    CU(cuCtxSynchronize());
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    CUdeviceptr block[RING];
    int head, tail;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *consumer(void *context) {
    CU(cuCtxSetCurrent(context));
    for (CUdeviceptr block = 1; block;) {
        pthread_mutex_lock(&queue.lock);
        while (queue.tail == queue.head)
            pthread_cond_wait(&queue.changed, &queue.lock);
        block = queue.block[queue.tail++ % RING];
        pthread_cond_signal(&queue.changed);
        pthread_mutex_unlock(&queue.lock);
        if (block)
            CU(cuMemFree(block));
    }
    return NULL;
}

static void hand_over(CUdeviceptr block) {
    pthread_mutex_lock(&queue.lock);
    while (queue.head - queue.tail == RING)
        pthread_cond_wait(&queue.changed, &queue.lock);
    queue.block[queue.head++ % RING] = block;
    pthread_cond_signal(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
}

/* One thread allocates, another frees; kernels run. 17 MiB live. */
static void handoff(CUcontext context) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block;
    pthread_t thread;
    start_thread(&thread, consumer, context);
    for (int i = 0; i < 2000; i++) {
        CU(cuMemAlloc(&block, MIB));
        if (i % 16 == 0)
            slow_fill(block, i, 512, stream, 1);
        hand_over(block);
    }
    hand_over(0);
    pthread_join(thread, NULL);
    CU(cuCtxSynchronize());
}

/* Written on one stream, read and freed on another, after it. 16 MiB live. `steps`: with a synchronisation now and then, as a program has one a step. */
static void across(bool steps) {
    enum { ROUNDS = 2000, PIECE = 512 };
    CUdeviceptr ring[RING] = {0}, seen;
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent written;
    static unsigned char copy[ROUNDS * PIECE];
    int wrong = 0;
    CU(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING));
    CU(cuMemAlloc(&seen, sizeof copy));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr *block = &ring[i % RING];
        if (*block)
            CU(cuMemFreeAsync(*block, other));
        CU(cuMemAllocAsync(block, MIB, one));
        CU(cuMemsetD8Async(*block, (unsigned char)(i % 251), PIECE, one));
        CU(cuEventRecord(written, one));
        CU(cuStreamWaitEvent(other, written, 0));
        if (i % RING == 0)
            CU(cuLaunchHostFunc(other, sleep_in_stream, (void *)1));
        CU(cuMemcpyDtoDAsync(seen + (size_t)i * PIECE, *block, PIECE, other));
        if (steps && i % 128 == 127)
            CU(cuStreamSynchronize(other));
    }
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH(copy, seen, sizeof copy));
    for (int i = 0; i < ROUNDS; i++)
        wrong += wrong_bytes(copy + (size_t)i * PIECE, i % 251, PIECE) > 0;
    printf("wrong: %d\n", wrong);
}

/* A stream for each piece of work. 1 MiB live. */
static void short_streams(void) {
    for (int i = 0; i < 400; i++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr block;
        CU(cuMemAllocAsync(&block, MIB, stream));
        CU(cuMemsetD8Async(block, i, MIB, stream));
        CU(cuMemFreeAsync(block, stream));
        if (i % 2)
            CU(cuStreamSynchronize(stream));
        CU(cuStreamDestroy(stream));
    }
}

/* More and more, then nothing, again and again; each time in other sizes. 64 MiB live. */
static void sawtooth(void) {
    CUdeviceptr block[64] = {0};
    for (int round = 0; round < 40; round++) {
        size_t size = MIB / 2 + (size_t)(round * 7 % 11) * (48 * KIB), live = 0;
        for (int i = 0; i < 64 && live + size <= 64 * MIB; i++, live += size)
            CU(cuMemAlloc(&block[i], size));
        for (int i = 0; i < 64; i++)
            free_now(&block[(i * 37 + round) % 64]);
    }
}

/* Each block is larger than all before, as a list that grows by copies. 33 MiB live. */
static void growing(void) {
    CUdeviceptr old = 0, block;
    for (size_t size = 64 * KIB; size <= 16 * MIB; size += size / 32 + 512) {
        CU(cuMemAlloc(&block, size));
        free_now(&old);
        old = block;
    }
    free_now(&old);
}

/* Many small blocks, some of which stay until the next round; then a few large ones. 64 MiB live. */
static void phases(void) {
    static CUdeviceptr small[1024], kept[32];
    CUdeviceptr large[3];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT_OF(small); i++)
            CU(cuMemAlloc(&small[i], (4 + (i * 7 + (size_t)round) % 57) * KIB));
        for (size_t i = 0; i < COUNT_OF(small); i++) {
            if (i % 32 == 0) {
                free_now(&kept[i / 32]);
                kept[i / 32] = small[i];
                small[i] = 0;
            }
            free_now(&small[i]);
        }
        for (size_t i = 0; i < COUNT_OF(large); i++)
            CU(cuMemAlloc(&large[i], 20 * MIB + (size_t)round * 64 * KIB));
        for (size_t i = 0; i < COUNT_OF(large); i++)
            free_now(&large[i]);
    }
}

static size_t driver_says(void) {
    size_t free = 0, total = 0;
    CU(cuMemGetInfo(&free, &total));
    return (total - free) / MIB;
}

static void idle(const char *what) {
    CUdeviceptr block[64], small;
    bool some = strcmp(what, "some") == 0;
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemAlloc(&block[i], MIB + MIB / 2));
    CU(cuMemAlloc(&small, 4096));
    for (size_t i = 0; i < COUNT_OF(block); i++)
        if (!some || i != COUNT_OF(block) / 2)
            free_now(&block[i]);
    free_now(&small);
    if (strcmp(what, "again") == 0) {
        sleep_ms(2200);
        CU(cuMemAlloc(&block[0], 4 * MIB));
        free_now(&block[0]);
    }
    CU(cuCtxSynchronize());
    printf("the driver says that %zu MiB are used\n", driver_says());
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUcontext context = use_primary(0);
    if (argc > 2 && strcmp(argv[2], "independent") == 0) { /* no stream is to wait for another on the pool's account */
        CUmemoryPool pool;
        int no = 0;
        CU(cuDeviceGetDefaultMemPool(&pool, 0));
        CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
    }
    if (strcmp(what, "ahead") == 0)
        ahead();
    else if (strcmp(what, "handoff") == 0)
        handoff(context);
    else if (strcmp(what, "across") == 0)
        across(false);
    else if (strcmp(what, "steps") == 0)
        across(true);
    else if (strcmp(what, "short") == 0)
        short_streams();
    else if (strcmp(what, "sawtooth") == 0)
        sawtooth();
    else if (strcmp(what, "growing") == 0)
        growing();
    else if (strcmp(what, "phases") == 0)
        phases();
    else
        idle(what);
    printf("done\n");
    return 0;
}
