/*
 * How much memory there is, and what comes back: what arena and managed promise beyond the order of work. The first argument says which:
 *   exact MIB         one block of so much fits and nothing more; nor does anything when all but the last bytes are taken, and those can be had too
 *   info              cuMemGetInfo's free can be had, in one piece, and is gone then
 *   first             eight threads allocate for the first time at once
 *   grow              memory that was freed serves again after the driver refused memory to somebody else
 *   oversubscribe     16 blocks of 256 MiB, all in use at once
 *   probe BYTES       one block of so much; then blocks of 1 GiB until there are no more
 *   until MIB         blocks of so much until there are no more: how many
 *   granule           sizes around every granule that an allocator may have: each block has its own bytes, to the first and the last
 *   hole              full but for an idle hole of 2 MiB that holds no whole page, a kernel running: the hole serves, and nobody waits
 *   align             blocks asked for larger than needed and aligned up by the program, as for pages of 64 KiB
 *   attributes        what the driver says of a block
 *   capture           a block allocated while the thread's own stream captures: the graph holds what the program put in and nothing else
 *   live              one block of 1 MiB, which is never freed
 */
#include "driver.h"
#include <stdatomic.h>

static void say(const char *what, CUresult result) {
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("%s: %s\n", what, name);
}

static CUresult allocate(CUdeviceptr *block, size_t size) {
    *block = 7;
    CUresult result = cuMemAlloc(block, size);
    if (result != CUDA_SUCCESS && *block)
        printf("a failed allocation left a pointer\n");
    return result;
}

static bool holds(CUdeviceptr address, unsigned char value) {
    unsigned char byte = 0;
    CU(cuMemcpyDtoH(&byte, address, 1));
    return byte == value;
}

static void exact(size_t size) {
    CUdeviceptr first, rest, more;
    say("all", allocate(&first, size));
    CU(cuMemsetD8(first + size - 1, 1, 1));
    printf("the last byte is memory: %s\n", yes_no(holds(first + size - 1, 1)));
    say("a byte more", allocate(&more, 1));
    CU(cuMemFree(first));
    say("more than all", allocate(&more, size + 1));
    say("the first bytes", allocate(&first, 512));
    say("all the rest", allocate(&rest, size - 512));
    CU(cuMemsetD8(first, 2, 512));
    CU(cuMemsetD8(rest, 3, size - 512));
    printf("apart: %s\n", yes_no(holds(first, 2) && holds(first + 511, 2) && holds(rest, 3) && holds(rest + size - 513, 3)));
    say("a byte more", allocate(&more, 1));
    CU(cuMemFree(first));
    say("the first bytes again", allocate(&more, 512));
    CU(cuMemFree(more));
    CU(cuMemFree(rest));
    say("all again", allocate(&first, size));
}

static void info(void) {
    size_t before = 0, after = 1, total = 0, device = 0, again = 0;
    CUdeviceptr all;
    CU(cuMemGetInfo(&before, &total));
    CU(cuDeviceTotalMem(&device, 0));
    printf("MiB free at first: %zu; the total is the device's: %s\n", before / MIB, yes_no(total == device));
    say("all of it", allocate(&all, before));
    CU(cuMemGetInfo(&after, &total));
    printf("MiB free then: %zu\n", after / MIB);
    CU(cuMemFree(all));
    CU(cuMemGetInfo(&again, &total));
    printf("free again: %s\n", yes_no(again == before));
}

static CUcontext context;
static pthread_barrier_t together;

static void *first_of_thread(void *block) {
    CU(cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    CU(cuMemAlloc(block, 4096));
    return NULL;
}

static void first(void) {
    pthread_t thread[8];
    CUdeviceptr block[8];
    pthread_barrier_init(&together, NULL, COUNT_OF(thread));
    for (size_t i = 0; i < COUNT_OF(thread); i++)
        start_thread(&thread[i], first_of_thread, &block[i]);
    for (size_t i = 0; i < COUNT_OF(thread); i++)
        pthread_join(thread[i], NULL);
    printf("all served\n");
}

static void grow(void) {
    CUdeviceptr block, managed;
    CU(cuMemAlloc(&block, 20 * MIB));
    CU(cuMemFree(block));
    CU(cuCtxSynchronize());
    say("refused to somebody else", cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    say("again", allocate(&block, 20 * MIB));
    CU(cuMemsetD8(block, 5, 20 * MIB));
    printf("wrong bytes: %zu\n", wrong_on_device(block, 5, 20 * MIB));
}

static void oversubscribe(void) {
    const size_t size = 256 * MIB, step = 16 * MIB;
    CUdeviceptr block[16];
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemAlloc(&block[i], size));
    for (size_t i = 0; i < COUNT_OF(block); i++)
        for (size_t at = 0; at < size; at += step) /* a page here and there: the machine need not have so much itself */
            CU(cuMemsetD8Async(block[i] + at, (unsigned char)(i + 1), 4096, stream));
    CU(cuStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT_OF(block); i++)
        for (size_t at = 0; at < size; at += step)
            wrong += !holds(block[i] + at, (unsigned char)(i + 1)) || !holds(block[i] + at + 4095, (unsigned char)(i + 1));
    printf("blocks: %zu, wrong: %zu\n", COUNT_OF(block), wrong);
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemFree(block[i]));
}

static size_t take_all(size_t size) {
    CUdeviceptr block;
    size_t count = 0;
    while (count < 100000 && allocate(&block, size) == CUDA_SUCCESS)
        count++;
    return count;
}

/* Neighbours are held while each size is tried, so that a byte too many shows. */
static void granule(void) {
    static const size_t granules[] = {1, 32, 256, 512, 4096, 64 * KIB, MIB, 2 * MIB, 4 * MIB, 20 * MIB, 32 * MIB};
    CUdeviceptr below, above, block;
    size_t tried = 0, wrong = 0;
    for (size_t i = 0; i < COUNT_OF(granules); i++)
        for (int off = -1; off <= 1; off++) {
            size_t size = granules[i] + (size_t)off;
            if (!size)
                continue;
            CU(cuMemAlloc(&below, 512));
            CU(cuMemAlloc(&block, size));
            CU(cuMemAlloc(&above, 512));
            CU(cuMemsetD8(below, 1, 512));
            CU(cuMemsetD8(above, 2, 512));
            CU(cuMemsetD8(block, 3, size));
            wrong += block % 256 != 0 || !holds(block, 3) || !holds(block + size - 1, 3);
            wrong += !holds(below, 1) || !holds(below + 511, 1) || !holds(above, 2) || !holds(above + 511, 2);
            CU(cuMemFree(below));
            CU(cuMemFree(block));
            CU(cuMemFree(above));
            tried++;
        }
    printf("sizes: %zu, wrong: %zu\n", tried, wrong);
}

static _Atomic bool served;

static void CUDA_CB until_served(void *unused) {
    (void)unused;
    while (!atomic_load(&served))
        sleep_ms(1);
}

static int by_address(const void *one, const void *other) {
    CUdeviceptr a = *(const CUdeviceptr *)one, b = *(const CUdeviceptr *)other;
    return a < b ? -1 : a > b;
}

static void hole(void) {
    CUdeviceptr block[8], last;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < COUNT_OF(block); i++)
        CU(cuMemAlloc(&block[i], MIB));
    qsort(block, COUNT_OF(block), sizeof *block, by_address);
    CU(cuMemFree(block[1]));
    CU(cuMemFree(block[2]));
    CU(cuCtxSynchronize());
    CU(cuLaunchHostFunc(stream, until_served, NULL));
    CU(cuMemAlloc(&last, 2 * MIB));
    atomic_store(&served, true);
    CU(cuStreamSynchronize(stream));
    printf("finished: yes\n");
}

static void align(void) {
    static const size_t sizes[] = {1, 4096, 65535, 65536, 65537, 3 * MIB + 1};
    CUdeviceptr block[2][COUNT_OF(sizes)], aligned[2][COUNT_OF(sizes)], below;
    size_t wrong = 0;
    CU(cuMemAlloc(&below, 512)); /* so that the first block starts just above a page of 64 KiB, and needs the last bytes of it all */
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            CU(cuMemAlloc(&block[round][i], sizes[i] + 65535));
            aligned[round][i] = (block[round][i] + 65535) & ~(CUdeviceptr)65535;
            CU(cuMemsetD8(aligned[round][i], (unsigned char)(16 * round + (int)i + 1), sizes[i]));
        }
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            wrong += wrong_on_device(aligned[round][i], 16 * round + (int)i + 1, sizes[i]);
    printf("wrong bytes: %zu\n", wrong);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            CU(cuMemFree(block[round][i]));
    CU(cuMemFree(below));
}

static void attributes(void) {
    CUdeviceptr block;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CU(cuMemAlloc(&block, 3 * MIB));
    for (size_t at = 0; at <= MIB; at += MIB) {
        unsigned managed = 7, type = 7, both[2] = {7, 7};
        void *data[] = {&both[0], &both[1]};
        CU(cuPointerGetAttribute(&managed, names[0], block + at));
        CU(cuPointerGetAttribute(&type, names[1], block + at));
        CU(cuPointerGetAttributes(2, names, data, block + at));
        printf("managed: %s, device memory: %s, both ways: %s\n", yes_no(managed), yes_no(type == CU_MEMORYTYPE_DEVICE),
               yes_no(both[0] == managed && both[1] == type));
    }
    CU(cuMemFree(block));
}

static void capture(void) {
    const size_t size = 24 * MIB;
    CUdeviceptr block;
    CUgraph graph = NULL;
    CUgraphExec executable;
    size_t nodes = 0;
    CU(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("allocated", allocate(&block, size));
    CU(cuMemsetD8Async(block, 9, size, CU_STREAM_PER_THREAD));
    say("captured", cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    CU(cuGraphGetNodes(graph, NULL, &nodes));
    CU(cuGraphInstantiate(&executable, graph, 0));
    CU(cuGraphLaunch(executable, CU_STREAM_PER_THREAD));
    printf("nodes: %zu, wrong bytes: %zu\n", nodes, wrong_on_device(block, 9, size));
    CU(cuMemFree(block));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    size_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    CUdeviceptr block;
    context = use_primary(0);
    if (strcmp(what, "exact") == 0)
        exact(number * MIB);
    else if (strcmp(what, "info") == 0)
        info();
    else if (strcmp(what, "first") == 0)
        first();
    else if (strcmp(what, "grow") == 0)
        grow();
    else if (strcmp(what, "oversubscribe") == 0)
        oversubscribe();
    else if (strcmp(what, "granule") == 0)
        granule();
    else if (strcmp(what, "hole") == 0)
        hole();
    else if (strcmp(what, "align") == 0)
        align();
    else if (strcmp(what, "capture") == 0)
        capture();
    else if (strcmp(what, "attributes") == 0)
        attributes();
    else if (strcmp(what, "live") == 0)
        say("block", allocate(&block, MIB));
    else if (strcmp(what, "until") == 0)
        printf("blocks: %zu\n", take_all(number * MIB));
    else if (strcmp(what, "probe") == 0) {
        say("one", allocate(&block, number));
        printf("the probing ended: %s\n", yes_no(take_all(KIB * MIB) < 100000));
    } else
        die("what?");
    return 0;
}
