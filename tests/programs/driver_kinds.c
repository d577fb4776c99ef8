/*
 * Allocates and frees with one kind of driver call, a few rounds, checks the memory and says what a counter in between should
 * have seen. How the driver's functions were found is the business of the reach_*.c file it is linked with.
 */
#include "driver_kinds.h"

#define ROUNDS 4
#define SIZE ((size_t)100000)
#define CU(call) driver_must(call, #call, __LINE__)

static struct driver_table d;

static void driver_must(CUresult error, const char *call, int line) {
    if (error != CUDA_SUCCESS)
        die("driver_kinds.c:%d: %s: error %d", line, call, (int)error);
}

struct piece {
    CUdeviceptr memory;
    size_t bytes; /* what the driver was asked for */
};

static struct piece take_malloc(CUstream stream) {
    (void)stream;
    struct piece piece = {.bytes = SIZE};
    CU(d.cuMemAlloc(&piece.memory, SIZE));
    return piece;
}

static struct piece take_async(CUstream stream) {
    struct piece piece = {.bytes = SIZE};
    CU(d.cuMemAllocAsync(&piece.memory, SIZE, stream));
    return piece;
}

static struct piece take_pitch(CUstream stream) {
    (void)stream;
    struct piece piece;
    size_t pitch;
    CU(d.cuMemAllocPitch(&piece.memory, &pitch, 513, 10, 16));
    piece.bytes = pitch * 10;
    return piece;
}

static struct piece take_managed(CUstream stream) {
    (void)stream;
    struct piece piece = {.bytes = SIZE};
    CU(d.cuMemAllocManaged(&piece.memory, SIZE, CU_MEM_ATTACH_GLOBAL));
    return piece;
}

static struct piece take_from_pool(CUstream stream) {
    struct piece piece = {.bytes = SIZE};
    CUdevice device;
    CUmemoryPool pool;
    CU(d.cuDeviceGet(&device, 0));
    CU(d.cuDeviceGetDefaultMemPool(&pool, device));
    CU(d.cuMemAllocFromPoolAsync(&piece.memory, SIZE, pool, stream));
    return piece;
}

static void give_free(CUdeviceptr memory, CUstream stream) {
    (void)stream;
    CU(d.cuMemFree(memory));
}

static void give_async(CUdeviceptr memory, CUstream stream) {
    CU(d.cuMemFreeAsync(memory, stream));
}

static const struct kind {
    const char *name;
    struct piece (*take)(CUstream);
    void (*give)(CUdeviceptr, CUstream);
} kinds[] = {
    {"malloc", take_malloc, give_free},
    {"async", take_async, give_async},
    {"pitch", take_pitch, give_free},
    {"managed", take_managed, give_free},
    {"from_pool", take_from_pool, give_async},
    {"malloc_freed_async", take_malloc, give_async},
    {"async_freed_sync", take_async, give_free},
};

static void run_kind(const struct kind *kind) {
    CUdevice device;
    CUcontext context;
    CUstream created;
    size_t peak = 0;
    CU(d.cuInit(0));
    CU(d.cuDeviceGet(&device, 0));
    CU(d.cuDevicePrimaryCtxRetain(&context, device));
    CU(d.cuCtxSetCurrent(context));
    CU(d.cuStreamCreate(&created, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream = round % 2 ? created : NULL;
        struct piece piece = kind->take(stream);
        unsigned char *copy = malloc(piece.bytes);
        CU(d.cuMemsetD8Async(piece.memory, (unsigned char)(0x40 + round), piece.bytes, stream));
        CU(d.cuMemcpyDtoHAsync(copy, piece.memory, piece.bytes, stream));
        CU(d.cuStreamSynchronize(stream));
        if (wrong_bytes(copy, 0x40 + round, piece.bytes))
            die("%s: wrong data in round %d", kind->name, round);
        free(copy);
        kind->give(piece.memory, stream);
        CU(d.cuStreamSynchronize(stream));
        peak = piece.bytes > peak ? piece.bytes : peak;
    }
    CU(d.cuStreamDestroy(created));
    printf("%s: right\n", kind->name);
    printf("expect allocations=%d frees=%d peak_live_bytes=%zu live_blocks=0 live_bytes=0 failed=0\n", ROUNDS, ROUNDS, peak);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "malloc";
    reach_driver(&d);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            run_kind(&kinds[i]);
            return 0;
        }
    }
    fprintf(stderr, "unknown kind %s\n", name);
    return 2;
}
