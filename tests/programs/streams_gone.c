/*
 * A thousand streams that each allocate, work and free, and are destroyed with that pending; then one large allocation on stream
 * 0, of all the bytes there are. Argument: "handles" or "threads", how many streams and events of the driver's are left of streams
 * that come and go one by one, threads' default streams with their threads; and how many there are in all.
 */
#include "driver.h"
#include <dlfcn.h>

#define STREAMS 1000
#define PIECE (32 * KIB)
#define SMALL 512
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

/* The device never falls far behind: what is kept while it does is another matter. */
static void catch_up(int i) {
    if (i % 50 == 0)
        CU(cuCtxSynchronize());
}

static void streams_one_by_one(int count) {
    for (int i = 1; i <= count; i++) {
        CUdeviceptr memory;
        CUstream stream = new_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        CU(cuMemAllocAsync(&memory, SMALL, stream));
        CU(cuMemsetD8Async(memory, 0x31, SMALL, stream));
        CU(cuMemFreeAsync(memory, stream));
        CU(cuStreamDestroy(stream));
        catch_up(i);
    }
}

/* So many frees that they are worth an event of the thread's own. */
static void *thread(void *context) {
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < 64; i++) {
        CUdeviceptr memory;
        CU(cuMemAllocAsync(&memory, SMALL, CU_STREAM_PER_THREAD));
        CU(cuMemFreeAsync(memory, CU_STREAM_PER_THREAD));
    }
    return NULL;
}

static void threads_one_by_one(int count) {
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    for (int i = 1; i <= count; i++) {
        pthread_t id;
        start_thread(&id, thread, context);
        pthread_join(id, NULL);
        catch_up(i);
    }
}

/* There is memory for all of them, so that nobody has to look for any. After many streams there are no more events than after half
 * as many, and never more than some dozens (a hundred were seen). */
static void handles(void (*one_by_one)(int count), int count) {
    const char *(*calls)(int, unsigned long *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver)
        *(void **)&calls = dlsym(driver, "simcuda_calls");
    if (!calls)
        skip("needs the simulated driver");
    CU(cuMemFreeAsync(large_block(), NULL));
    CU(cuCtxSynchronize());
    one_by_one(count / 2);
    long half = made(calls, "cuEvent");
    one_by_one(count / 2);
    long events = made(calls, "cuEvent");
    printf("streams left: %ld, events: %s, more of them after as many more: %s\n", made(calls, "cuStream"),
           events < 300 ? "few" : "many", events - half < 100 ? "hardly any" : "many");
}

int main(int argc, char **argv) {
    use_primary(0);
    if (argc > 2 && strcmp(argv[1], "handles") == 0)
        handles(streams_one_by_one, atoi(argv[2]));
    else if (argc > 2 && strcmp(argv[1], "threads") == 0)
        handles(threads_one_by_one, atoi(argv[2]));
    else
        reuse();
    return 0;
}
