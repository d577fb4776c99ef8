/*
 * Order: what a free waits for, that old work never reaches a new owner, stream-ordered memory, and the pools it comes from.
 *
 * A kernel is a delay in the stream, then a memset. Where the question is whether a call waits for it, it runs until the call
 * has returned, or for so long that the call must have waited.
 */
#include "conform.h"

#define SIZE (256 * KIB)
#define MS 60
#define LONG_MS 150

static int returned, over;

static void CUDART_CB run_until_returned(void *unused) {
    (void)unused;
    for (double start_ms = now_ms(); !raised(&returned) && now_ms() < start_ms + LONG_MS;)
        sleep_ms(1);
    set_flag(&over);
}

void busy(cudaStream_t on) {
    returned = over = 0;
    NEED(cudaLaunchHostFunc(on, run_until_returned, NULL));
}

static bool said_yes;

const char *waited(void) {
    said_yes = raised(&over);
    set_flag(&returned);
    return yes_no(said_yes);
}

bool unsure(void) {
    static bool once_more;

    once_more = said_yes && !once_more;
    return once_more;
}

/* The old owner's late write must not be seen by the new owner. Blocks so large that an allocator would want them back at once.
 */
static void recycled(enum kind kind, enum way way, cudaStream_t next, const char *name) {
    const size_t size = 40 * MIB;
    void *old = memory(kind, size);
    char *copy[3];
    occupy(stream, MS);
    NEED(cudaMemsetAsync(old, 0x11, size, stream));
    struct outcome freed = give(way, old);
    bool intact = true;
    for (size_t i = 0; i < COUNT_OF(copy); i++) {
        NEED(kind == ASYNC ? cudaMallocAsync((void **)&copy[i], size, next) : cudaMalloc((void **)&copy[i], size));
        NEED(cudaMemsetAsync(copy[i], 0x22, size, next));
    }
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        intact &= holds(copy[i], 0x22, SIZE) && holds(copy[i] + size - SIZE, 0x22, SIZE);
    line(name, "%s, new owner's data intact: %s", worked(freed) ? "freed" : "refused", yes_no(intact));
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        drop(copy[i]);
}

void group_waits(void) {
    start();
    cudaStream_t blocking;
    NEED(cudaStreamCreate(&blocking));
    const struct {
        const char *name;
        cudaStream_t on;
    } streams[] = {{"a non-blocking stream", second},
                   {"a blocking stream", blocking},
                   {"the legacy stream", cudaStreamLegacy},
                   {"the per-thread stream", cudaStreamPerThread}};
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        static const enum kind kinds[] = {MALLOC, PITCH, MANAGED, DRIVER, ASYNC, FROM_POOL};
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            const char *waits;
            cudaError_t error;
            do {
                void *p = memory(kinds[k], SIZE);
                busy(streams[i].on);
                error = cudaFree(p);
                waits = waited();
                NEED(cudaDeviceSynchronize());
            } while (unsure());
            begin("free of %s beside work on %s", kind_name[kinds[k]], streams[i].name);
            say("%s, waits: %s", rt(error), waits);
            end();
        }
    }
    for (int k = 0; k < KINDS; k++) {
        if (k == GRAPH) /* is taken by a launch, which is waited for */
            continue;
        const char *waits;
        struct outcome taken;
        do {
            void *p = NULL;
            busy(second);
            taken = take(k, &p, SIZE);
            waits = waited();
            NEED(cudaDeviceSynchronize());
            drop(p);
        } while (unsure());
        begin("%s beside work", kind_name[k]);
        say("%s, waits: %s", worked(taken) ? "taken" : "refused", waits);
        end();
    }
    for (int k = MALLOC; k <= FROM_POOL; k++) {
        if (k == MANAGED)
            continue;
        const char *waits;
        cudaError_t error;
        do {
            void *p = memory(k, SIZE);
            busy(stream);
            error = cudaFreeAsync(p, stream);
            waits = waited();
            NEED(cudaDeviceSynchronize());
        } while (unsure());
        begin("cudaFreeAsync of %s beside work", kind_name[k]);
        say("%s, waits: %s", rt(error), waits);
        end();
    }
}

void group_order(void) {
    start();
    cudaStream_t blocking;
    NEED(cudaStreamCreate(&blocking));
    recycled(MALLOC, FREE, second, "cudaMalloc + cudaFree, next owner on another stream");
    recycled(MALLOC, FREE, stream, "cudaMalloc + cudaFree, next owner on the same stream");
    recycled(MALLOC, FREE, blocking, "cudaMalloc + cudaFree, next owner on a blocking stream");
    recycled(MALLOC, MEM_FREE, second, "cudaMalloc + cuMemFree, next owner on another stream");
    recycled(MALLOC, FREE_ASYNC, second, "cudaMalloc + cudaFreeAsync, next owner on another stream");
    recycled(PITCH, FREE, second, "cudaMallocPitch + cudaFree, next owner on another stream");
    recycled(MANAGED, FREE, second, "cudaMallocManaged + cudaFree, next owner on another stream");
    recycled(ASYNC, FREE_ASYNC, stream, "cudaMallocAsync + cudaFreeAsync, next owner on the same stream");
    recycled(ASYNC, FREE_ASYNC, second, "cudaMallocAsync + cudaFreeAsync, next owner on another stream");

    /* The owner's own order: what it queued before its free still happens to its memory. */
    char *p = memory(ASYNC, SIZE), *copy = memory(MALLOC, SIZE);
    occupy(stream, MS);
    NEED(cudaMemsetAsync(p, 0x33, SIZE, stream));
    NEED(cudaMemcpyAsync(copy, p, SIZE, cudaMemcpyDeviceToDevice, stream));
    NEED(cudaFreeAsync(p, stream));
    line("cudaFreeAsync behind a copy, the copy is right", "%s", yes_no(holds(copy, 0x33, SIZE)));

    /* An event passes stream-ordered memory on. */
    cudaEvent_t event;
    NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NEED(cudaMallocAsync((void **)&p, SIZE, stream));
    occupy(stream, MS);
    NEED(cudaMemsetAsync(p, 0x44, SIZE, stream));
    NEED(cudaEventRecord(event, stream));
    NEED(cudaStreamWaitEvent(second, event, 0));
    NEED(cudaMemcpyAsync(copy, p, SIZE, cudaMemcpyDeviceToDevice, second));
    begin("cudaMallocAsync on one stream, cudaFreeAsync on another");
    say_rt(cudaFreeAsync(p, second));
    say("the copy is right: %s", yes_no(holds(copy, 0x44, SIZE)));
    end();
}

/* Memory whose stream is no more. */
static void *of_a_destroyed_stream(void) {
    cudaStream_t own;
    void *p;
    NEED(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    NEED(cudaMallocAsync(&p, SIZE, own));
    NEED(cudaStreamSynchronize(own));
    NEED(cudaStreamDestroy(own));
    return p;
}

void group_streams(void) {
    cudaStream_t own;
    void *p, *q;
    start();
    NEED(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    NEED(cudaMallocAsync(&p, SIZE, own));
    busy(own);
    NEED(cudaFreeAsync(p, own));
    cudaError_t destroyed = cudaStreamDestroy(own);
    line("cudaStreamDestroy with a free pending", "%s, waits: %s", rt(destroyed), waited());
    NEED(cudaMallocAsync(&q, SIZE, second));
    NEED(cudaMemsetAsync(q, 0x55, SIZE, second));
    line("memory taken then holds its data", "%s", yes_no(holds(q, 0x55, SIZE)));
    begin("second free of what the destroyed stream freed");
    NEED(cudaFreeAsync(q, second));
    NEED(cudaDeviceSynchronize());
    say_rt(cudaFree(p));
    end();

    p = of_a_destroyed_stream();
    begin("cudaFree of a destroyed stream's memory");
    say_rt(cudaFree(p));
    end();
    p = of_a_destroyed_stream();
    begin("cudaFreeAsync of a destroyed stream's memory on another");
    say_rt(cudaFreeAsync(p, second));
    end();

    int failed = 0;
    for (int i = 0; i < 200; i++) {
        NEED(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        failed += cudaMallocAsync(&p, 64 * KIB, own) != cudaSuccess;
        failed += cudaMemsetAsync(p, 1, 64 * KIB, own) != cudaSuccess;
        failed += cudaFreeAsync(p, own) != cudaSuccess;
        failed += cudaStreamDestroy(own) != cudaSuccess;
    }
    line("200 streams that allocate, free and go, calls failed", "%d", failed);
    NEED(cudaDeviceSynchronize());
    line("cudaMallocAsync then", "%s", rt(cudaMallocAsync(&p, 64 * MIB, second)));
    line("cudaFreeAsync then", "%s", rt(cudaFreeAsync(p, second)));

    /* A block of cudaMalloc's freed in stream order is still the stream's until then. */
    p = memory(MALLOC, SIZE);
    void *copy = memory(MALLOC, SIZE);
    occupy(stream, MS);
    NEED(cudaMemsetAsync(p, 0x66, SIZE, stream));
    NEED(cudaMemcpyAsync(copy, p, SIZE, cudaMemcpyDeviceToDevice, stream));
    NEED(cudaFreeAsync(p, stream));
    NEED(cudaMalloc(&q, SIZE));
    NEED(cudaMemsetAsync(q, 0x77, SIZE, second));
    line("cudaMalloc's block freed in stream order, its last copy is right", "%s", yes_no(holds(copy, 0x66, SIZE)));
    line("and the next block's data", "%s", yes_no(holds(q, 0x77, SIZE)));
    line("cudaStreamSynchronize leaves no error", "%s", rt(cudaStreamSynchronize(stream)));
    line("cudaStreamQuery", "%s", rt(cudaStreamQuery(stream)));
}

static unsigned long long number(cudaMemPool_t pool, enum cudaMemPoolAttr attribute) {
    unsigned long long value = 0;
    NEED(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static int flag_of(cudaMemPool_t pool, enum cudaMemPoolAttr attribute) {
    int value = -1;
    NEED(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

#define USED cudaMemPoolAttrUsedMemCurrent
#define RESERVED cudaMemPoolAttrReservedMemCurrent
#define USED_HIGH cudaMemPoolAttrUsedMemHigh
#define RESERVED_HIGH cudaMemPoolAttrReservedMemHigh
#define THRESHOLD cudaMemPoolAttrReleaseThreshold

/* What a pool tells of itself while 8 MiB come and go. */
static void life_of(cudaMemPool_t pool, enum kind kind, const char *name) {
    const size_t size = 8 * MIB;
    char title[100];
    unsigned long long high = 0, used = number(pool, USED);
#define LINE(what, ...)                                                                                                          \
    do {                                                                                                                         \
        snprintf(title, sizeof title, "%s, %s", name, what);                                                                     \
        line(title, __VA_ARGS__);                                                                                                \
    } while (0)
    LINE("used at first", "%llu", used);
    LINE("reserved at first", "%llu", number(pool, RESERVED));
    LINE("release threshold", "%llu", number(pool, THRESHOLD));
    LINE("follows event dependencies", "%d", flag_of(pool, cudaMemPoolReuseFollowEventDependencies));
    LINE("reuses opportunistically", "%d", flag_of(pool, cudaMemPoolReuseAllowOpportunistic));
    LINE("adds internal dependencies", "%d", flag_of(pool, cudaMemPoolReuseAllowInternalDependencies));
    void *p = memory(kind, size), *q = memory(kind, size);
    LINE("two blocks, used", "%llu MiB", number(pool, USED) / MIB);
    LINE("two blocks, reserved covers used", "%s", yes_no(number(pool, RESERVED) >= number(pool, USED)));
    LINE("two blocks, high marks cover them", "%s",
         yes_no(number(pool, USED_HIGH) >= 2 * size && number(pool, RESERVED_HIGH) >= 2 * size));
    NEED(cudaFreeAsync(p, stream));
    NEED(cudaFreeAsync(q, stream)); /* cudaFree would leave it counted as used */
    LINE("both freed, used", "%llu MiB", number(pool, USED) / MIB);
    NEED(cudaStreamSynchronize(stream));
    LINE("then a synchronisation, used", "%llu", number(pool, USED));
    LINE("then a synchronisation, all given back", "%s", yes_no(number(pool, RESERVED) == 0));
    LINE("used's high mark stays", "%llu MiB", number(pool, USED_HIGH) / MIB);
    LINE("high mark set to 1", "%s", rt((high = 1, cudaMemPoolSetAttribute(pool, USED_HIGH, &high))));
    LINE("high mark set to 0", "%s", rt((high = 0, cudaMemPoolSetAttribute(pool, USED_HIGH, &high))));
    LINE("used's high mark then", "%llu", number(pool, USED_HIGH));
    cudaGetLastError();
    LINE("used set", "%s", rt(cudaMemPoolSetAttribute(pool, USED, &high)));
    cudaGetLastError();
    unsigned long long most = UINT64_MAX;
    LINE("threshold set", "%s", rt(cudaMemPoolSetAttribute(pool, THRESHOLD, &most)));
    LINE("threshold reads back", "%s", yes_no(number(pool, THRESHOLD) == most));
    p = memory(kind, size);
    NEED(cudaFreeAsync(p, stream));
    NEED(cudaStreamSynchronize(stream));
    NEED(cudaDeviceSynchronize());
    LINE("under a threshold, reserved stays", "%s", yes_no(number(pool, RESERVED) >= size));
    LINE("trim to 2^40", "%s", rt(cudaMemPoolTrimTo(pool, (size_t)1 << 40)));
    LINE("reserved stays", "%s", yes_no(number(pool, RESERVED) >= size));
    LINE("trim to 0", "%s", rt(cudaMemPoolTrimTo(pool, 0)));
    LINE("all given back then", "%s", yes_no(number(pool, RESERVED) == 0));
    p = memory(kind, size);
    LINE("a block in use, trim to 0", "%s", rt(cudaMemPoolTrimTo(pool, 0)));
    LINE("a block in use, reserved covers it", "%s", yes_no(number(pool, RESERVED) >= size));
    NEED(cudaMemset(p, 0x12, size));
    LINE("a block in use, it holds its data", "%s", yes_no(holds(p, 0x12, size)));
    NEED(cudaFree(p));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemPoolTrimTo(pool, 0));
    unsigned long long none = 0;
    NEED(cudaMemPoolSetAttribute(pool, THRESHOLD, &none));
    int off = 0;
    LINE("reuse policy set", "%s", rt(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &off)));
    LINE("reuse policy reads back", "%d", flag_of(pool, cudaMemPoolReuseAllowOpportunistic));
    LINE("attribute 999", "%s", rt(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)999, &most)));
    cudaGetLastError();
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice}, .flags = cudaMemAccessFlagsProtReadWrite};
    enum cudaMemAccessFlags flags = 99;
    LINE("access of its device", "%s", rt(cudaMemPoolGetAccess(&flags, pool, &access.location)));
    LINE("access is", "%d", (int)flags);
    LINE("access set to what it is", "%s", rt(cudaMemPoolSetAccess(pool, &access, 1)));
    cudaGetLastError();
    access.flags = cudaMemAccessFlagsProtNone;
    LINE("its device's access taken away", "%s", rt(cudaMemPoolSetAccess(pool, &access, 1)));
    cudaGetLastError();
    access.location.id = 99;
    LINE("access of device 99", "%s", rt(cudaMemPoolSetAccess(pool, &access, 1)));
    cudaGetLastError();
    LINE("access of nobody", "%s", rt(cudaMemPoolSetAccess(pool, NULL, 0)));
    cudaGetLastError();
#undef LINE
}

void group_pools(void) {
    cudaMemPool_t pool, current;
    start();
    NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
    NEED(cudaDeviceGetMemPool(&current, 0));
    line("the current pool is the default one", "%s", yes_no(pool == current));
    life_of(pool, ASYNC, "default");
    begin("cudaMemPoolDestroy of the default pool");
    say_rt(cudaMemPoolDestroy(pool));
    end();
    begin("cudaDeviceSetMemPool(NULL)");
    say_rt(cudaDeviceSetMemPool(0, NULL));
    end();
}

void group_own_pools(void) {
    cudaMemPool_t pool, current, device_pool;
    start();
    life_of(own_pool, FROM_POOL, "own");
    NEED(cudaDeviceGetDefaultMemPool(&device_pool, 0));
    void *p = NULL, *q = NULL;
    NEED(cudaDeviceSetMemPool(0, own_pool));
    NEED(cudaDeviceGetMemPool(&current, 0));
    line("set as current", "%s", yes_no(current == own_pool));
    NEED(cudaMallocAsync(&p, MIB, stream));
    CUmemoryPool of = NULL;
    NEED_CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)p));
    line("cudaMallocAsync comes from it", "%s", yes_no((void *)of == (void *)own_pool));
    line("its used grows", "%s", yes_no(number(own_pool, USED) >= MIB));
    NEED(cudaMalloc(&q, MIB));
    line("cudaMalloc does not", "%s", cu(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)q)));
    line("and its pool", "%s", of ? "set" : "none");
    NEED(cudaFreeAsync(p, stream));
    NEED(cudaFree(q));
    NEED(cudaDeviceSetMemPool(0, device_pool));
    NEED(cudaStreamSynchronize(stream));

    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice}};
    NEED(cudaMemPoolCreate(&pool, &properties));
    NEED(cudaMallocFromPoolAsync(&p, MIB, pool, stream));
    NEED(cudaStreamSynchronize(stream));
    line("cudaMemPoolDestroy with a block in use", "%s", rt(cudaMemPoolDestroy(pool)));
    NEED(cudaMemset(p, 0x19, MIB));
    line("the block holds its data", "%s", yes_no(holds(p, 0x19, MIB)));
    begin("cudaFreeAsync of the block");
    say_rt(cudaFreeAsync(p, stream));
    end();
    NEED(cudaStreamSynchronize(stream));
    begin("the block's second free");
    say_rt(cudaFree(p));
    end();

    NEED(cudaMemPoolCreate(&pool, &properties));
    NEED(cudaMallocFromPoolAsync(&p, MIB, pool, stream));
    begin("cudaFree of a pool's block, then the pool's end");
    NEED(cudaStreamSynchronize(stream));
    say_rt(cudaFree(p));
    say("used: %s", yes_no(number(pool, USED) >= MIB));
    say_rt(cudaMemPoolDestroy(pool));
    end();
    properties.location.id = 99;
    begin("cudaMemPoolCreate on device 99");
    say_rt(cudaMemPoolCreate(&pool, &properties));
    end();
    begin("cudaMemPoolCreate(NULL)");
    say_rt(cudaMemPoolCreate(NULL, &properties));
    end();
    properties.location.id = 0;
    properties.maxSize = 4 * MIB;
    cudaError_t error = cudaMemPoolCreate(&pool, &properties);
    line("cudaMemPoolCreate with a limit", "%s", rt(error));
    if (error == cudaSuccess) {
        p = KEPT;
        begin("more than the limit");
        say_rt(cudaMallocFromPoolAsync(&p, 256 * MIB, pool, stream));
        say("%s", pointer(p));
        end();
    }
}
