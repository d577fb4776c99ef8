/*
 * Lets each driver call fail in turn under every kind of allocation, free and reuse. Whatever fails, the program gets a pointer
 * to memory that works and is known, or an error and no pointer; afterwards everything can be freed, nothing is left in the
 * driver, and nothing is counted as live. "rounds": ten thousand rounds of one such failure leave no memory behind, on the host
 * either. Run with SIMCUDA_MEMORY=96M.
 */
#include "driver.h"
#include "failures.h"

#define MOST 80

static struct {
    CUdeviceptr memory;
    size_t size;
    bool uncertain; /* its free failed: it may be gone */
} held[MOST];

static CUcontext context;
static CUdevice device;
static CUstream first, second;
static size_t base; /* what a fresh context takes of the device */

static void keep(CUresult result, CUdeviceptr memory, size_t size) {
    size_t i = 0;
    if (result != CUDA_SUCCESS) {
        expect(memory == 0, "error %d, and a pointer", (int)result);
        return;
    }
    expect(memory != 0, "success without a pointer");
    for (int k = 0; k < MOST; k++) /* whose free failed, and who is gone all the same */
        if (held[k].uncertain && memory - held[k].memory < held[k].size)
            held[k].memory = 0, held[k].uncertain = false;
    while (i < MOST && held[i].memory)
        i++;
    if (i == MOST)
        die("more than %d blocks", MOST);
    held[i].memory = memory;
    held[i].size = size;
    held[i].uncertain = false;
}

static void take(size_t size) {
    CUdeviceptr memory = 7;
    CUresult result = cuMemAlloc(&memory, size);
    keep(result, memory, size);
}

static void take_async(size_t size, CUstream stream) {
    CUdeviceptr memory = 7;
    CUresult result = cuMemAllocAsync(&memory, size, stream);
    keep(result, memory, size);
}

static void gone(int i, CUresult result) {
    if (result == CUDA_SUCCESS)
        held[i].memory = 0;
    else
        held[i].uncertain = true;
}

/* Frees everything; in the order of `stream` unless that is NULL. */
static void give_all(CUstream stream) {
    for (int i = 0; i < MOST; i++)
        if (held[i].memory && !held[i].uncertain)
            gone(i, stream ? cuMemFreeAsync(held[i].memory, stream) : cuMemFree(held[i].memory));
}

/* --- what is under test: work that may be prepared, the part in which calls fail, what is to be done afterwards ----- */

static void nothing(void) {}

static void warm(void) {
    take(64 * KIB);
    give_all(NULL);
}

static void pairs(void) {
    for (int i = 0; i < 3; i++) {
        take(64 * KIB);
        give_all(NULL);
    }
}

static void grow(void) {
    for (size_t size = 1 * MIB; size <= 16 * MIB; size *= 2)
        take(size);
    give_all(NULL);
}

/* Enough to make the caches record. */
static void many(void) {
    for (int i = 0; i < 70; i++)
        take(64 * KIB);
    give_all(NULL);
    for (int i = 0; i < 3; i++)
        take(10 * MIB);
    give_all(NULL);
    take(10 * MIB);
}

/* Freed and busy, so that the next owners have to ask, or to wait on the device. */
static void busy(void) {
    for (int i = 0; i < 10; i++)
        take(5 * MIB);
    slow_fill(held[0].memory, 1, 4096, first, 1);
}

static void reuse(void) {
    give_all(NULL);
    for (int i = 0; i < 10; i++)
        take(5 * MIB);
}

static void pieces(void) {
    for (int i = 0; i < 10; i++)
        take(6 * MIB);
    give_all(NULL);
}

static void one_large(void) {
    take(60 * MIB);
    take(60 * MIB);
}

static void streams(void) {
    for (int i = 0; i < 20; i++) {
        take_async(2 * MIB, first);
        take_async(3000, second);
        give_all(first);
    }
    take_async(2 * MIB, second);
    take_async(2 * MIB, CU_STREAM_LEGACY);
    give_all(NULL);
    take(2 * MIB);
    give_all(second);
}

static void end_of_stream(void) {
    CUresult result;
    take_async(2 * MIB, first);
    give_all(first);
    result = cuStreamDestroy(first);
    if (result == CUDA_SUCCESS)
        first = NULL;
    take(2 * MIB);
}

static void other_kinds(void) {
    CUdeviceptr memory = 7;
    CUmemoryPool pool;
    size_t pitch = 0;
    CUresult result = cuMemAllocPitch(&memory, &pitch, 1000, 100, 4);
    keep(result, memory, result == CUDA_SUCCESS ? pitch * 100 : 0);
    memory = 7;
    result = cuMemAllocManaged(&memory, 3 * MIB, CU_MEM_ATTACH_GLOBAL);
    keep(result, memory, 3 * MIB);
    if (cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS) {
        memory = 7;
        result = cuMemAllocFromPoolAsync(&memory, 3 * MIB, pool, first);
        keep(result, memory, 3 * MIB);
    }
    give_all(NULL);
}

static void trim(void) {
    if (cuplug_trim)
        cuplug_trim(device);
    take(1 * MIB);
}

static void capture(void) {
    pieces();
    CU(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void beside_a_capture(void) {
    take_async(20 * MIB, second);
    one_large();
    give_all(NULL);
}

/* More than what the records of frees bring back. */
static void all_beside_a_capture(void) {
    take(86 * MIB);
    give_all(NULL);
}

static void end_capture(void) {
    CUgraph graph = NULL;
    if (cuStreamEndCapture(first, &graph) == CUDA_SUCCESS && graph)
        CU(cuGraphDestroy(graph));
}

static const struct test {
    const char *name;
    void (*prepare)(void), (*act)(void), (*end)(void);
} tests[] = {
    {"the same block again", warm, pairs, nothing},
    {"growth", nothing, grow, nothing},
    {"many frees", nothing, many, nothing},
    {"busy blocks", busy, reuse, nothing},
    {"memory out", pieces, one_large, nothing},
    {"streams", nothing, streams, nothing},
    {"a stream's end", nothing, end_of_stream, nothing},
    {"pitched, managed, from a pool", warm, other_kinds, nothing},
    {"memory given back", pieces, trim, nothing},
    {"beside a capture", capture, beside_a_capture, end_capture},
    {"all memory beside a capture", capture, all_beside_a_capture, end_capture},
};

/* --- before and after ------------------------------------------------------------------------------------------------ */

static void start(void) {
    context = use_primary(0); /* anew after a reset */
    first = new_stream(CU_STREAM_NON_BLOCKING);
    second = new_stream(CU_STREAM_NON_BLOCKING);
}

/* The thread as it was: a call that failed may have left a context on its stack, or another capture mode. */
static void tidy_thread(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUcontext current;
    while (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current)
        CU(cuCtxPopCurrent(&current));
    CU(cuCtxSetCurrent(context));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
}

static int live(bool uncertain) {
    int count = 0;
    for (int i = 0; i < MOST; i++)
        count += held[i].memory && held[i].uncertain == uncertain;
    return count;
}

/* The first and last bytes of each block hold what is written there, whoever else writes. */
static void use_all(void) {
    for (int i = 0; i < MOST; i++) {
        size_t part = held[i].size < 1000 ? held[i].size : 1000;
        if (held[i].memory && !held[i].uncertain) {
            CU(cuMemsetD8(held[i].memory, (unsigned char)(i + 1), part));
            CU(cuMemsetD8(held[i].memory + held[i].size - part, (unsigned char)(i + 1), part));
        }
    }
    for (int i = 0; i < MOST; i++) {
        size_t part = held[i].size < 1000 ? held[i].size : 1000;
        if (held[i].memory && !held[i].uncertain)
            expect(!wrong_on_device(held[i].memory, i + 1, part) &&
                       !wrong_on_device(held[i].memory + held[i].size - part, i + 1, part),
                   "memory that does not work");
    }
}

static void free_all(void) {
    for (int i = 0; i < MOST; i++) {
        CUdeviceptr memory = held[i].memory;
        CUresult result = memory ? cuMemFree(memory) : CUDA_SUCCESS;
        expect(result == CUDA_SUCCESS || (held[i].uncertain && result == CUDA_ERROR_INVALID_VALUE), "a free: error %d",
               (int)result);
        expect(!memory || cuMemFree(memory) != CUDA_SUCCESS, "a second free succeeds");
        held[i].memory = 0;
        held[i].uncertain = false;
    }
}

static void settle(void) {
    tidy_thread();
    take(4096); /* where an error seemed to last, the driver now shows that it does not */
    expect(figure("live_blocks") < 0 ||
               (figure("live_blocks") >= live(false) && figure("live_blocks") <= live(false) + live(true)),
           "%lld blocks counted as live, and %d or %d are", figure("live_blocks"), live(false), live(false) + live(true));
    use_all();
    free_all();
    expect(figure("live_blocks") <= 0 && figure("live_bytes") <= 0, "%lld blocks, %lld bytes live", figure("live_blocks"),
           figure("live_bytes"));
    CU(cuCtxSynchronize());
    while (cuplug_trim && cuplug_trim(device) > 0)
        ;
    CU(cuCtxSynchronize());
    expect(serves("arena") || sim.used(device) == base, "%zu KiB of the driver's memory are left",
           (sim.used(device) - base) / KIB);
    expect(serves("arena") || figure("reserved_bytes") <= 0, "%lld bytes counted as reserved", figure("reserved_bytes"));
    CU(cuDevicePrimaryCtxReset(device));
    expect(figure("reserved_bytes") <= 0, "%lld bytes counted as reserved after the context's end", figure("reserved_bytes"));
}

static void one(const char *item, void *arg) {
    const struct test *test = arg;
    start();
    test->prepare();
    begin(item);
    test->act();
    end();
    test->end();
    settle();
}

static void all_tests(void) {
    int failures = 0;
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        int before = wrong;
        failures += with_each_failure(one, (void *)&tests[i]);
        printf("%s: %s\n", tests[i].name, wrong == before ? "right" : "wrong");
    }
    fprintf(stderr, "failures: %d\n", failures);
}

static void rounds(const char *item) {
    size_t early = 0;
    start();
    sim.fail(item);
    for (int round = 0; round < 10000; round++) {
        take(8 * MIB);
        take(64 * KIB);
        take_async(8 * MIB, first);
        give_all(NULL);
        for (int i = 0; i < MOST; i++) /* what could not be freed is tried again, once */
            if (held[i].memory) {
                cuMemFree(held[i].memory);
                held[i].memory = 0;
            }
        if (round == 2000)
            early = resident_bytes();
    }
    failing = item;
    expect(resident_bytes() < early + 2 * MIB, "%zu KiB more than after 2000 rounds", (resident_bytes() - early) / KIB);
    sim.fail(NULL);
    settle();
    printf("rounds: %s\n", wrong ? "wrong" : "right");
}

int main(int argc, char **argv) {
    find_simulated_driver();
    start();
    CU(cuDeviceGet(&device, 0));
    base = sim.used(device);
    CU(cuDevicePrimaryCtxReset(device));
    if (argc > 2)
        rounds(argv[2]);
    else
        all_tests();
    return wrong != 0;
}
