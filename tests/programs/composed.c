/*
 * Several backends for one program, and a limit. The first argument says which:
 *   fill KIND COUNT MIB    so many blocks of so much, by cuMemAlloc ("plain"), in the order of a stream ("ordered"), or pitched: whose memory each is, that each has
 *                          its own bytes and is said to be what it is, and what a second round gets once all are freed
 *   limit MIB              16 threads allocate and free; never is more live than so much; then all of it can be had, and no byte more
 *   info                   what cuMemGetInfo calls free before, with 24 MiB live, and after
 */
#include "driver.h"
#include <stdatomic.h>

enum { MOST = 64 };

static CUstream stream;

static CUresult take(const char *kind, CUdeviceptr *block, size_t size) {
    size_t pitch;
    *block = 7;
    if (strcmp(kind, "ordered") == 0)
        return cuMemAllocAsync(block, size, stream);
    if (strcmp(kind, "pitched") == 0)
        return cuMemAllocPitch(block, &pitch, 4096, size / 4096, 4);
    return cuMemAlloc(block, size);
}

static void give(const char *kind, CUdeviceptr block) {
    CU(strcmp(kind, "ordered") == 0 ? cuMemFreeAsync(block, stream) : cuMemFree(block));
}

static bool is_managed(CUdeviceptr block) {
    unsigned managed = 7;
    CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
    return managed == 1;
}

static bool described(CUdeviceptr block, size_t size) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CU(cuMemGetAddressRange(&base, &bytes, block + size / 2));
    return base == block && bytes == size;
}

static void fill_once(const char *kind, int count, size_t size) {
    CUdeviceptr block[MOST];
    int device = 0, managed = 0, refused = 0, wrong = 0, undescribed = 0;
    for (int i = 0; i < count; i++) {
        CUresult result = take(kind, &block[i], size);
        if (result != CUDA_SUCCESS) {
            refused += result == CUDA_ERROR_OUT_OF_MEMORY && !block[i];
            block[i] = 0;
            continue;
        }
        managed += is_managed(block[i]);
        device += !is_managed(block[i]);
        undescribed += !described(block[i], size);
        CU(cuMemsetD8Async(block[i], (unsigned char)(i + 1), size, stream));
    }
    CU(cuStreamSynchronize(stream));
    for (int i = 0; i < count; i++)
        wrong += block[i] && wrong_on_device(block[i], i + 1, size) > 0;
    printf("%d of the device's, %d managed, %d refused, wrong %d\n", device, managed, refused, wrong + undescribed);
    for (int i = 0; i < count; i++)
        if (block[i])
            give(kind, block[i]);
    CU(cuCtxSynchronize());
}

static void fill(const char *kind, int count, size_t size) {
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    fill_once(kind, count, size);
    fill_once(kind, count, size);
}

static CUcontext context;
static size_t most;
static _Atomic size_t live; /* as the program knows: raised after an allocation, lowered before its free */
static _Atomic int above, refused;

static void *work(void *number) {
    CUdeviceptr block[64];
    size_t size[64];
    uint32_t random = 77 + (uint32_t)(intptr_t)number;
    CU(cuCtxSetCurrent(context));
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 64; i++) {
            size[i] = 1 + next_random(&random) % (most / 32);
            if (cuMemAlloc(&block[i], size[i]) != CUDA_SUCCESS) {
                size[i] = 0;
                refused++;
            }
            above += atomic_fetch_add(&live, size[i]) + size[i] > most;
        }
        for (int i = 0; i < 64; i++)
            if (size[i]) {
                atomic_fetch_sub(&live, size[i]);
                CU(cuMemFree(block[i]));
            }
    }
    return NULL;
}

static void limit(size_t bytes) {
    pthread_t thread[16];
    CUdeviceptr all, more;
    most = bytes;
    for (int i = 0; i < 16; i++)
        start_thread(&thread[i], work, (void *)(intptr_t)i);
    for (int i = 0; i < 16; i++)
        pthread_join(thread[i], NULL);
    printf("above the limit: %d times, refused some: %s\n", above, yes_no(refused > 0));
    CU(cuMemAlloc(&all, most));
    printf("a byte more: %d\n", (int)cuMemAlloc(&more, 1));
    CU(cuMemFree(all));
}

static void info_now(const char *when) {
    size_t free_bytes = 0, total = 0;
    CU(cuMemGetInfo(&free_bytes, &total));
    printf("%s: %zu MiB free\n", when, free_bytes / MIB);
}

static void info(void) {
    CUdeviceptr block;
    info_now("before");
    CU(cuMemAlloc(&block, 24 * MIB));
    info_now("with 24 MiB live");
    CU(cuMemFree(block));
    CU(cuCtxSynchronize());
    info_now("after");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    context = use_primary(0);
    if (strcmp(what, "fill") == 0 && argc > 4 && atoi(argv[3]) <= MOST)
        fill(argv[2], atoi(argv[3]), (size_t)atoi(argv[4]) * MIB);
    else if (strcmp(what, "limit") == 0 && argc > 2)
        limit((size_t)atoi(argv[2]) * MIB);
    else if (strcmp(what, "info") == 0)
        info();
    else
        die("what?");
    return 0;
}
