/*
 * Corners of keeping memory small, one a run: "follower", "green", "beside", "merged", "tight", "old", "spread", "moved", "foreign", "apart", "refused", "pools". Each prints
 * what the program sees of it; what was reserved, recorded and given back is for the statistics and the driver's log to say.
 */
#include "driver.h"
#include <dlfcn.h>

static void *found(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY), *function = driver ? dlsym(driver, name) : NULL;
    if (!function)
        skip("needs the simulated driver");
    return function;
}

static void fails(const char *items) {
    ((void (*)(const char *))found("simcuda_fail"))(items);
}

static void trim(void) {
    void *self = dlopen(NULL, RTLD_LAZY);
    size_t (*give_back)(int) = (size_t(*)(int))dlsym(self, "cuplug_trim");
    if (give_back)
        give_back(0);
}

static CUdeviceptr take(size_t size) {
    CUdeviceptr memory;
    CU(cuMemAlloc(&memory, size));
    return memory;
}

static void pairs(int count, size_t size) {
    for (int i = 0; i < count; i++)
        CU(cuMemFree(take(size)));
}

/* A stream that was made to wait for another's memory is destroyed; the next has its handle, and gets of the same memory. */
static void follower(CUcontext unused) {
    (void)unused;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), next;
    CUdeviceptr large, memory;
    CU(cuMemAllocAsync(&large, 256 * MIB, stream));
    slow_fill(large, 0xaa, 256 * MIB, stream, 300);
    CU(cuMemFreeAsync(large, stream));
    for (int i = 0; i < 2; i++) {
        next = new_stream(CU_STREAM_NON_BLOCKING);
        CU(cuMemAllocAsync(&memory, 8 * MIB, next));
        CU(cuMemsetD8Async(memory, 0x55, 8 * MIB, next));
        if (i == 0)
            CU(cuStreamDestroy(next));
    }
    CU(cuStreamSynchronize(next));
    printf("wrong bytes: %zu\n", wrong_on_device(memory, 0x55, 8 * MIB));
}

/* A green context ends with its stream, whose work goes on; a new stream may have the handle. */
static void green(CUcontext first) {
    CUdevResource all, part[2];
    CUdevResourceDesc description;
    unsigned parts = 2;
    CUgreenCtx ended;
    CUstream stream, next;
    CUdeviceptr memory, block;
    CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CU(cuDevSmResourceSplitByCount(part, &parts, &all, NULL, 0, 8));
    CU(cuDevResourceGenerateDesc(&description, part, 1));
    CU(cuGreenCtxCreate(&ended, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CU(cuGreenCtxStreamCreate(&stream, ended, CU_STREAM_NON_BLOCKING, 0));
    CU(cuCtxSetCurrent(first));
    for (int i = 0; i < 2; i++) {
        CU(cuMemAllocAsync(&memory, 4096, stream));
        slow_fill(memory, 0xaa, 4096, stream, i * 200);
        CU(cuMemFreeAsync(memory, stream));
    }
    CU(cuGreenCtxDestroy(ended));
    next = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuMemAllocAsync(&block, 4096, next));
    CU(cuMemsetD8Async(block, 0x55, 4096, next));
    CU(cuStreamSynchronize(next));
    printf("wrong bytes: %zu\n", wrong_on_device(block, 0x55, 4096));
}

/* Pairs without a stream's order by a thread that frees in the order of many, of which some are destroyed while they capture. */
static void beside(CUcontext unused) {
    (void)unused;
    CUdeviceptr memory;
    for (int i = 0; i < 200; i++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        CU(cuMemAllocAsync(&memory, 4096, stream));
        CU(cuMemFreeAsync(memory, stream));
        if (i % 2)
            continue;
        CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CU(cuStreamDestroy(stream));
    }
    pairs(6400, 256 * KIB);
}

/* Blocks freed in a stream's order beside a large one that the stream freed before. */
static void merged(CUcontext unused) {
    (void)unused;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory;
    CU(cuMemAllocAsync(&memory, 64 * MIB, stream));
    CU(cuMemFreeAsync(memory, stream));
    for (int i = 0; i < 1600; i++) {
        CU(cuMemAllocAsync(&memory, MIB + MIB / 4, stream));
        CU(cuMemFreeAsync(memory, stream));
    }
}

/* Memory, of 1 GiB, was out once. */
static void tight(CUcontext unused) {
    (void)unused;
    CUdeviceptr large = take(600 * MIB);
    CU(cuMemFree(large));
    CU(cuCtxSynchronize());
    large = take(700 * MIB);
    CU(cuMemFree(large));
    CU(cuCtxSynchronize());
    pairs(100000, 4096);
}

/* 20 MiB idle for long, 100 MiB in use now and then: for two seconds, with small pairs all the time. */
static void old(CUcontext unused) {
    (void)unused;
    CUdeviceptr idle, used;
    pairs(1, 4096); /* they have their own segment */
    idle = take(20 * MIB);
    used = take(100 * MIB);
    CU(cuMemFree(used));
    used = take(100 * MIB);
    CU(cuMemFree(idle));
    for (double end = now_ms() + 2600; now_ms() < end; sleep_ms(20)) {
        pairs(100, 4096);
        CU(cuMemFree(used));
        used = take(100 * MIB);
    }
}

/* 256 MiB idle beside a block in use. */
static void spread(CUcontext unused) {
    (void)unused;
    CUdeviceptr used = take(32 * MIB), idle[8];
    for (int i = 0; i < 8; i++)
        idle[i] = take(32 * MIB);
    for (int i = 0; i < 8; i++)
        CU(cuMemFree(idle[i]));
    for (double end = now_ms() + 2600; now_ms() < end; sleep_ms(50))
        pairs(1, 4 * MIB);
    CU(cuMemFree(used));
}

/* Every second of 16 blocks freed, then one of twice the size. */
static void moved(CUcontext unused) {
    (void)unused;
    CUdeviceptr block[16], large;
    for (int i = 0; i < 16; i++)
        block[i] = take(8 * MIB);
    for (int i = 0; i < 16; i += 2)
        CU(cuMemFree(block[i]));
    CU(cuCtxSynchronize());
    large = take(16 * MIB);
    CU(cuMemsetD8(large, 0x42, 16 * MIB));
    printf("wrong bytes: %zu\n", wrong_on_device(large, 0x42, 16 * MIB));
}

/* A block freed in the order of another context's stream, whose fence has counted far; then nothing is live, on a device of 192 MiB. */
static void foreign(CUcontext first) {
    CUdeviceptr waited = take(64 * MIB), again, block, large;
    CUcontext second;
    CUstream stream;
    CU(cuLaunchHostFunc(0, sleep_in_stream, (void *)100));
    CU(cuMemFree(waited));
    again = take(64 * MIB);
    CU(cuCtxSynchronize());
    block = take(32 * MIB);
    CU(cuCtxCreate(&second, NULL, 0, 0));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    pairs(2000, 32 * MIB);
    CU(cuMemFreeAsync(block, stream));
    CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(first));
    CU(cuMemFree(again));
    CU(cuCtxSynchronize());
    for (int i = 0; i < 8; i++)
        trim();
    CU(cuCtxSetCurrent(second));
    printf("nearly all of the device: error %d\n", (int)cuMemAlloc(&large, 150 * MIB));
}

/* Four segments side by side, all freed, then a block as large as all of them. */
static void apart(CUcontext unused) {
    (void)unused;
    CUdeviceptr block[4], large;
    for (int i = 0; i < 4; i++)
        block[i] = take(64 * MIB);
    for (int i = 0; i < 4; i++)
        CU(cuMemFree(block[i]));
    CU(cuCtxSynchronize());
    large = take(256 * MIB);
    printf("memset of the whole: error %d\n", (int)cuMemsetD8(large, 1, 256 * MIB));
}

/* The driver once does not take physical memory back, on a device of 400 MiB. */
static void refused(CUcontext unused) {
    (void)unused;
    CUdeviceptr memory = take(300 * MIB);
    CU(cuMemFree(memory));
    CU(cuCtxSynchronize());
    fails("cuMemRelease:1=999");
    trim();
    fails(NULL);
    printf("half of the device: error %d\n", (int)cuMemAlloc(&memory, 200 * MIB));
}

/* Contexts that end when freed memory still waits for its stream, after idle memory was given back. */
static void pools(CUcontext first) {
    size_t (*used)(int) = (size_t(*)(int))found("simcuda_used");
    for (int i = 0; i < 8; i++) {
        CUcontext context;
        CUdeviceptr memory;
        CUstream stream;
        CU(cuCtxCreate(&context, NULL, 0, 0));
        stream = new_stream(CU_STREAM_NON_BLOCKING);
        CU(cuMemAllocAsync(&memory, 64 * MIB, stream));
        CU(cuLaunchHostFunc(stream, sleep_in_stream, (void *)50));
        CU(cuMemFreeAsync(memory, stream));
        trim();
        CU(cuStreamSynchronize(stream));
        CU(cuCtxDestroy(context));
        CU(cuCtxSetCurrent(first));
        pairs(1, MIB);
    }
    trim();
    printf("the driver has given out %zu MiB\n", used(0) / MIB);
}

static const struct {
    const char *name;
    void (*run)(CUcontext primary);
} corners[] = {
    {"follower", follower}, {"green", green}, {"beside", beside},   {"merged", merged}, {"tight", tight},     {"old", old},
    {"spread", spread},     {"moved", moved}, {"foreign", foreign}, {"apart", apart},   {"refused", refused}, {"pools", pools},
};

int main(int argc, char **argv) {
    CUcontext context = use_primary(0);
    for (size_t i = 0; i < COUNT_OF(corners) && argc > 1; i++) {
        if (strcmp(argv[1], corners[i].name) != 0)
            continue;
        corners[i].run(context);
        printf("done\n");
        return 0;
    }
    die("what?");
}
