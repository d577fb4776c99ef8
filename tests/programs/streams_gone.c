/*
 * A thousand streams that each allocate, work and free, and are destroyed with that pending; then one large allocation on stream
 * 0, of all the bytes there are. Argument: "handles", how many streams and events of the driver's are left of streams that come
 * and go one by one.
 */
#include "driver.h"
#include <dlfcn.h>

#define STREAMS 1000
#define PIECE (32 * KIB)
#define LARGE (36 * MIB) /* more than all pieces, so that they can come from one such block */

static void all_at_once(void) {
    static struct {
        CUstream stream;
        CUdeviceptr memory;
    } owner[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        owner[i].stream = new_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        CU(cuMemAllocAsync(&owner[i].memory, PIECE, owner[i].stream));
    }
    for (int i = 0; i < STREAMS; i++) {
        if (i % 16 == 0)
            CU(cuLaunchHostFunc(owner[i].stream, sleep_in_stream, (void *)(intptr_t)5));
        CU(cuMemsetD8Async(owner[i].memory, 0x31, PIECE, owner[i].stream));
        CU(cuMemFreeAsync(owner[i].memory, owner[i].stream));
        CU(cuStreamDestroy(owner[i].stream));
    }
    CU(cuCtxSynchronize());
}

static CUdeviceptr large_block(void) {
    CUdeviceptr memory;
    CU(cuMemAllocAsync(&memory, LARGE, NULL));
    CU(cuMemsetD8Async(memory, 0x42, LARGE, NULL));
    return memory;
}

static void reuse(void) {
    CU(cuMemFreeAsync(large_block(), NULL));
    CU(cuCtxSynchronize());
    all_at_once();
    CUdeviceptr memory = large_block();
    printf("one block of all the bytes: wrong %zu\n", wrong_on_device(memory, 0x42, LARGE));
    CU(cuMemFreeAsync(memory, NULL));
    CU(cuCtxSynchronize());
}

static long made(const char *(*calls)(int, unsigned long *), const char *what) {
    unsigned long count;
    const char *name;
    size_t length = strlen(what);
    long balance = 0;
    for (int row = 0; (name = calls(row, &count)); row++) {
        if (strncmp(name, what, length) != 0)
            continue;
        if (strncmp(name + length, "Create", 6) == 0)
            balance += (long)count;
        else if (strncmp(name + length, "Destroy", 7) == 0)
            balance -= (long)count;
    }
    return balance;
}

static void one_by_one(int count) {
    for (int i = 0; i < count; i++) {
        CUdeviceptr memory;
        CUstream stream = new_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        CU(cuMemAllocAsync(&memory, PIECE, stream));
        CU(cuMemsetD8Async(memory, 0x31, PIECE, stream));
        CU(cuMemFreeAsync(memory, stream));
        CU(cuStreamDestroy(stream));
    }
}

/* After many streams there are no more events than after half as many; some may be kept for reuse. */
static void handles(void) {
    const char *(*calls)(int, unsigned long *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver)
        *(void **)&calls = dlsym(driver, "simcuda_calls");
    if (!calls)
        skip("needs the simulated driver");
    CU(cuMemFreeAsync(large_block(), NULL)); /* there is memory for a thousand pieces, so that nobody has to look for any */
    one_by_one(5 * STREAMS);
    CU(cuCtxSynchronize());
    long events = made(calls, "cuEvent");
    one_by_one(5 * STREAMS);
    CU(cuCtxSynchronize());
    printf("streams left: %ld, events kept for 5000 more: %s\n", made(calls, "cuStream"),
           made(calls, "cuEvent") - events < STREAMS ? "hardly any" : "many");
}

int main(int argc, char **argv) {
    use_primary(0);
    if (argc > 1 && strcmp(argv[1], "handles") == 0)
        handles();
    else
        reuse();
    return 0;
}
