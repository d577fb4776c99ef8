/*
 * What the driver says of memory, asked of allocations of every kind, inside, at the ends, past them and after the free. It prints codes and
 * whether the answers fit the allocation, so the output is the same whatever serves it. The first argument says which:
 *   live       base, size and attributes of live allocations; pitched ones too
 *   strangers  what is no allocation: past the end, freed, never allocated
 *   ids        the buffer id is an allocation's own, and never another's
 *   marks      SYNC_MEMOPS is an allocation's own
 *   handles    cuMemGetHandleForAddressRange
 *   capture    all that is legal while a stream captures, and leaves the capture whole
 *   churn      while other threads allocate and free
 *   share      whether what is said of sharing is true (not the same everywhere, but always "yes")
 *   info       cuMemGetInfo with and without its arguments
 *   idle       cuMemGetInfo where 5 of 6 GiB are free again: SIMCUDA_MEMORY=8G
 *   others     cuMemCreate and arrays: what was taken
 */
#include "driver.h"
#include <stdatomic.h>

static CUstream stream;

enum { SYNC, ASYNC, PITCHED, MANAGED, POOLED, KINDS };
static const char *const kind_names[] = {"malloc", "async", "pitched", "managed", "from pool"};

struct block {
    CUdeviceptr base;
    size_t size;
    int kind;
};

static struct block take(int kind, size_t size, unsigned element) {
    struct block block = {.size = size, .kind = kind};
    CUmemoryPool pool;
    size_t pitch;
    switch (kind) {
    case SYNC:
        CU(cuMemAlloc(&block.base, size));
        break;
    case ASYNC:
        CU(cuMemAllocAsync(&block.base, size, stream));
        break;
    case PITCHED: /* so many rows of 100 bytes */
        CU(cuMemAllocPitch(&block.base, &pitch, 100, size, element));
        if (pitch < 100)
            die("pitch %zu", pitch);
        block.size = pitch * size;
        break;
    case MANAGED:
        CU(cuMemAllocManaged(&block.base, size, CU_MEM_ATTACH_GLOBAL));
        break;
    default:
        CU(cuDeviceGetDefaultMemPool(&pool, 0));
        CU(cuMemAllocFromPoolAsync(&block.base, size, pool, stream));
    }
    return block;
}

static void give(struct block block) {
    if (block.kind == ASYNC || block.kind == POOLED)
        CU(cuMemFreeAsync(block.base, stream));
    else
        CU(cuMemFree(block.base));
}

static CUresult ask(void *answer, size_t size, CUpointer_attribute attribute, CUdeviceptr pointer) {
    memset(answer, 0x55, size);
    return cuPointerGetAttribute(answer, attribute, pointer);
}

/* One attribute both ways. */
#define ASK(answer, attribute, pointer)                                                                                                \
    do {                                                                                                                             \
        __typeof__(answer) other;                                                                                                    \
        CUpointer_attribute name = attribute;                                                                                        \
        void *data = &other;                                                                                                         \
        memset(&other, 0x55, sizeof other);                                                                                          \
        if (ask(&(answer), sizeof(answer), name, pointer) != CUDA_SUCCESS ||                                                         \
            cuPointerGetAttributes(1, &name, &data, pointer) != CUDA_SUCCESS || memcmp(&other, &(answer), sizeof other) != 0)        \
            die("%s of %#llx", #attribute, (unsigned long long)(pointer));                                                           \
    } while (0)

/* True if everything that is said of the address is about the block. */
static bool described(struct block block, CUdeviceptr at) {
    CUdeviceptr base = 0, start = 0, here = 0;
    size_t size = 0, range = 0;
    CUmemoryPool pool = NULL, expected = NULL;
    CUcontext context = NULL, current = NULL;
    int device = -1;
    unsigned type = 0, mapped = 0;
    bool pooled = block.kind == ASYNC || block.kind == POOLED;
    CU(cuMemGetAddressRange(&base, &size, at));
    CU(cuMemGetAddressRange(&start, NULL, at));
    CU(cuMemGetAddressRange(NULL, &range, at));
    if (base != block.base || size != block.size || start != base || range != size)
        return false;
    ASK(start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    ASK(range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    ASK(here, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
    ASK(device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    ASK(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    ASK(mapped, CU_POINTER_ATTRIBUTE_MAPPED, at);
    ASK(pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at);
    ASK(context, CU_POINTER_ATTRIBUTE_CONTEXT, at);
    CU(cuDeviceGetDefaultMemPool(&expected, 0));
    CU(cuCtxGetCurrent(&current));
    return start == base && range == size && here == at && device == 0 && type == CU_MEMORYTYPE_DEVICE && mapped &&
           pool == (pooled ? expected : NULL) && context == (pooled ? NULL : current);
}

static const size_t sizes[] = {1, 257, 512, 1000, 64 * KIB + 1, MIB, 3 * MIB, 5 * MIB + 7};

static void live(void) {
    static const unsigned elements[] = {4, 8, 16};
    struct block blocks[KINDS][COUNT_OF(sizes)];
    for (int kind = 0; kind < KINDS; kind++) /* all at once, so that each has neighbours */
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            blocks[kind][i] = take(kind, kind == PITCHED ? 7 + i : sizes[i], elements[i % 3]);
    for (int kind = 0; kind < KINDS; kind++) {
        size_t wrong = 0;
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            struct block block = blocks[kind][i];
            wrong += !described(block, block.base) || !described(block, block.base + block.size - 1);
            for (size_t part = 1; part < 8; part++)
                wrong += !described(block, block.base + block.size * part / 8);
            give(block);
        }
        printf("%s: wrong %zu\n", kind_names[kind], wrong);
    }
}

static void stranger(const char *what, CUdeviceptr pointer) {
    static CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT,         CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                          CU_POINTER_ATTRIBUTE_DEVICE_POINTER,  CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                          CU_POINTER_ATTRIBUTE_BUFFER_ID,       CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                          CU_POINTER_ATTRIBUTE_RANGE_SIZE,      CU_POINTER_ATTRIBUTE_MAPPED,
                                          CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                          CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    unsigned long long answers[COUNT_OF(names)], one = 0;
    void *data[COUNT_OF(names)];
    CUdeviceptr base = 5;
    size_t size = 5;
    unsigned on = 1;
    printf("%s:", what);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        answers[i] = 0x5555;
        data[i] = &answers[i];
        printf(" %d", (int)cuPointerGetAttribute(&one, names[i], pointer));
    }
    printf("; all: %d", (int)cuPointerGetAttributes(COUNT_OF(names), names, data, pointer));
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (answers[i] == pointer)
            printf(" itself");
        else
            printf(" %#llx", answers[i]);
    printf("; range: %d", (int)cuMemGetAddressRange(&base, &size, pointer));
    printf(" %#llx %zu", (unsigned long long)base, size);
    printf("; mark: %d; free: ", (int)cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    printf("%d\n", (int)cuMemFree(pointer));
}

static void strangers(void) {
    char local = 0;
    struct block before, block, after;
    /* Between neighbours that stay: the bytes are in the middle of whatever the memory is cut from. */
    for (int kind = SYNC; kind <= ASYNC; kind++) {
        before = take(kind, 64 * KIB, 0);
        block = take(kind, 64 * KIB - 100, 0);
        after = take(kind, 64 * KIB, 0);
        printf("%s\n", kind_names[kind]);
        stranger("past the end", block.base + block.size);
        give(block);
        CU(cuCtxSynchronize());
        stranger("freed", block.base);
        stranger("freed, inside", block.base + 1000);
        printf("the neighbours: %s %s\n", yes_no(described(before, before.base)), yes_no(described(after, after.base + 9)));
        give(before);
        give(after);
    }
    stranger("the stack", (CUdeviceptr)&local);
    stranger("the program", (CUdeviceptr)kind_names);
    stranger("an address of nobody's", 4096);
}

static unsigned long long id_of(CUdeviceptr pointer) {
    unsigned long long id;
    ASK(id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer);
    return id;
}

static int by_number(const void *one, const void *other) {
    unsigned long long a = *(const unsigned long long *)one, b = *(const unsigned long long *)other;
    return a < b ? -1 : a > b;
}

static void ids(void) {
    enum { ROUNDS = 50 };
    unsigned long long seen[ROUNDS * KINDS], repeated = 0, changed = 0;
    size_t count = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct block block = take(kind, kind == PITCHED ? 10 : 5120, 4); /* the same sizes, so that addresses come again */
            seen[count++] = id_of(block.base);
            changed += id_of(block.base + 1000) != seen[count - 1] || id_of(block.base) != seen[count - 1];
            give(block);
        }
    qsort(seen, count, sizeof *seen, by_number);
    for (size_t i = 1; i < count; i++)
        repeated += seen[i] == seen[i - 1];
    printf("ids: %zu, repeated %llu, different inside %llu\n", count, repeated, changed);
}

static unsigned mark_of(CUdeviceptr pointer) {
    unsigned mark;
    ASK(mark, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer);
    return mark;
}

static void marks(void) {
    unsigned on = 1, off = 0;
    for (int kind = SYNC; kind <= ASYNC; kind++) {
        struct block block = take(kind, 4096, 0), other = take(kind, 4096, 0), again;
        printf("%s: new %u %u", kind_names[kind], mark_of(block.base), mark_of(other.base));
        CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block.base + 100));
        printf(", set %u %u", mark_of(block.base), mark_of(other.base));
        CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other.base));
        CU(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block.base));
        printf(", taken back %u %u", mark_of(block.base), mark_of(other.base + 1));
        give(other);
        CU(cuCtxSynchronize());
        again = take(kind, 4096, 0);
        printf(", of the next owner %u\n", mark_of(again.base));
        give(block);
        give(again);
    }
    struct block block = take(SYNC, 4096, 0);
    unsigned char tokens[64];
    CUresult result = cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block.base);
    printf("tokens: %d, mark %u\n", (int)result, mark_of(block.base));
    give(block);
}

static void handle_of(const char *what, CUdeviceptr pointer, size_t size) {
    int fd = -7;
    CUresult result = cuMemGetHandleForAddressRange(&fd, pointer, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    printf("%s: %d, handle %s\n", what, (int)result, fd >= 0 ? "made" : fd == -1 ? "-1" : "left alone");
    if (fd >= 0)
        close(fd);
}

static void handles(void) {
    struct block big = take(SYNC, 4 * MIB, 0), gone = take(SYNC, 4 * MIB, 0), after = take(SYNC, 4 * MIB, 0);
    int supported = 0;
    CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    if (!supported)
        skip("no dma-buf");
    give(gone);
    handle_of("all", big.base, 4 * MIB);
    handle_of("inside", big.base + MIB, 4096);
    handle_of("odd address", big.base + 512, 4096);
    handle_of("odd size", big.base, 1000);
    handle_of("nothing", big.base, 0);
    handle_of("freed", gone.base, 4096);
    handle_of("nobody's", 4096, 4096);
    printf("no place for it: %d\n", (int)cuMemGetHandleForAddressRange(NULL, big.base, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    give(big);
    give(after);
}

static void capture(void) {
    static const char *const names[] = {"cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemGetAddressRange", "cuMemGetInfo",
                                        "cuPointerGetAttribute, pool"};
    struct block block = take(SYNC, 4096, 0), async = take(ASYNC, 4096, 0), gone = take(SYNC, 4096, 0);
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    size_t size = 0, more;
    void *data = &size;
    CUdeviceptr base;
    CUmemoryPool pool;
    CUgraph graph;
    CU(cuStreamSynchronize(stream));
    give(gone);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CUresult result = CUDA_SUCCESS, unknown = CUDA_SUCCESS;
        CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        switch (i) {
        case 0:
            result = cuPointerGetAttribute(&size, attribute, block.base + 1);
            unknown = cuPointerGetAttribute(&size, attribute, gone.base);
            break;
        case 1:
            result = cuPointerGetAttributes(1, &attribute, &data, block.base + 1);
            unknown = cuPointerGetAttributes(1, &attribute, &data, gone.base);
            break;
        case 2:
            result = cuMemGetAddressRange(&base, &size, block.base + 1);
            unknown = cuMemGetAddressRange(&base, &more, gone.base);
            break;
        case 3:
            result = cuMemGetInfo(&size, &more);
            break;
        default:
            result = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, async.base);
        }
        printf("%s: %d, of what was freed %d", names[i], (int)result, (int)unknown);
        printf(", the capture's end %d\n", (int)cuStreamEndCapture(stream, &graph));
    }
    give(block);
    give(async);
}

static _Atomic bool stop;
static CUcontext context;

static void *churn_thread(void *seed) {
    uint32_t state = (uint32_t)(uintptr_t)seed;
    CUdeviceptr blocks[32] = {0};
    CU(cuCtxSetCurrent(context));
    while (!atomic_load(&stop)) {
        uint32_t i = next_random(&state) % COUNT_OF(blocks);
        if (blocks[i])
            CU(cuMemFree(blocks[i]));
        CU(cuMemAlloc(&blocks[i], 512 + next_random(&state) % (256 * KIB)));
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        if (blocks[i])
            CU(cuMemFree(blocks[i]));
    return NULL;
}

static void churn(void) {
    pthread_t threads[4];
    struct block blocks[64];
    uint32_t state = 9;
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        start_thread(&threads[i], churn_thread, (void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        blocks[i] = take(i % 2 ? SYNC : ASYNC, 1 + next_random(&state) % (128 * KIB), 0);
    for (int round = 0; round < 3000; round++) {
        size_t i = next_random(&state) % COUNT_OF(blocks);
        wrong += !described(blocks[i], blocks[i].base + next_random(&state) % blocks[i].size);
        if (round % 4 == 0) {
            int kind = blocks[i].kind;
            give(blocks[i]);
            blocks[i] = take(kind, 1 + next_random(&state) % (128 * KIB), 0);
        }
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    printf("wrong: %zu\n", wrong);
}

static void share(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct block block = take(kind, kind == PITCHED ? 10 : 5000, 4);
        unsigned managed, type, capable;
        CUipcMemHandle handle;
        void *host;
        for (size_t at = 0; at < 5000; at += 2500) {
            ASK(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block.base + at);
            ASK(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block.base + at);
            ASK(capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block.base + at);
            bool shared = cuIpcGetMemHandle(&handle, block.base + at) == CUDA_SUCCESS;
            bool host_too = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, block.base + at) == CUDA_SUCCESS;
            printf("%s: device memory: %s, the host's too if managed: %s, shared as it says: %s, not if managed: %s\n", kind_names[kind],
                   yes_no(type == CU_MEMORYTYPE_DEVICE), yes_no(host_too == (managed != 0)), yes_no(shared == (capable != 0)),
                   yes_no(!(managed && shared)));
        }
        give(block);
    }
}

static void info(void) {
    size_t free = 0, total = 0, alone = 0, physical = 0, both = 0;
    struct block block;
    CU(cuDeviceTotalMem(&physical, 0));
    for (int round = 0; round < 2; round++) {
        block = take(SYNC, 20 * MIB, 0);
        for (int when = 0; when < 2; when++) {
            CUresult one = cuMemGetInfo(&free, &total), two = cuMemGetInfo(&alone, NULL), three = cuMemGetInfo(NULL, &both);
            printf("info: %d %d %d %d; in order: %s, the same alone: %s\n", (int)one, (int)two, (int)three, (int)cuMemGetInfo(NULL, NULL),
                   yes_no(free <= total && total <= physical), yes_no((!device_is_ours() || alone == free) && both == total));
            if (when == 0)
                give(block);
        }
    }
}

static size_t free_now(void) {
    size_t free, total;
    CU(cuMemGetInfo(&free, &total));
    return free;
}

static void idle(void) {
    CUdeviceptr blocks[6], all;
    size_t before, after, overhead = 64 * MIB;
    bool falls = true, rises = true;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        before = free_now();
        CU(cuMemAlloc(&blocks[i], 1024 * MIB));
        falls &= free_now() + 1024 * MIB <= before + 2 * MIB;
    }
    for (size_t i = 1; i < COUNT_OF(blocks); i++) { /* so that what is left in an arena is in one piece */
        before = free_now();
        CU(cuMemFree(blocks[i]));
        rises &= free_now() >= before;
    }
    after = free_now();
    printf("free falls: %s, rises: %s, MiB free: %zu\n", yes_no(falls), yes_no(rises), (after + 32 * MIB) / (64 * MIB) * 64);
    printf("all of it but 64 MiB: %d\n", (int)cuMemAlloc(&all, after - overhead));
}

static void others(void) {
    CUmemGenericAllocationHandle handle[2];
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1024, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 64, .Height = 64, .Depth = 64, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1};
    CUarray arrays[2];
    CUmipmappedArray levels;
    CU(cuMemCreate(&handle[0], 4 * MIB, &where, 0));
    CU(cuMemCreate(&handle[1], 2 * MIB, &where, 0));
    CU(cuArrayCreate(&arrays[0], &flat));
    CU(cuArray3DCreate(&arrays[1], &deep));
    CU(cuMipmappedArrayCreate(&levels, &deep, 3));
    CU(cuMipmappedArrayDestroy(levels));
    for (int i = 0; i < 2; i++) {
        CU(cuMemRelease(handle[i]));
        CU(cuArrayDestroy(arrays[i]));
    }
    printf("expect vmm_allocs=2 vmm_bytes=%zu array_allocs=3 array_bytes=%zu allocations=0 live_bytes=0\n", 6 * MIB,
           (size_t)2 * (4 * MIB + 64 * 64 * 64 + 64 * 64 * 64 + 32 * 32 * 32 + 16 * 16 * 16));
}

static const struct {
    const char *name;
    void (*body)(void);
} parts[] = {{"live", live},       {"strangers", strangers}, {"ids", ids},     {"marks", marks}, {"handles", handles}, {"capture", capture},
             {"churn", churn},     {"share", share},         {"info", info},   {"idle", idle},   {"others", others}};

int main(int argc, char **argv) {
    context = use_primary(0);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0)
            return parts[i].body(), 0;
    die("what?");
}
