/*
 * What allocations answer: NULL for an out-parameter, every size that is special, alignment and pitch.
 */
#include "conform.h"

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t size, CUstream on);
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t size, CUmemoryPool pool, CUstream on);
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream on);

/* Each case may crash a driver, so each is one of its own. */
#define RT_CASE(name, call)                                                                                                      \
    if (wanted()) {                                                                                                              \
        begin(name);                                                                                                             \
        say_rt(call);                                                                                                            \
        end();                                                                                                                   \
    }
#define CU_CASE(name, call)                                                                                                      \
    if (wanted()) {                                                                                                              \
        begin(name);                                                                                                             \
        say_cu(call);                                                                                                            \
        end();                                                                                                                   \
    }

void group_nulls(void) {
    void *p = NULL;
    CUdeviceptr d = 0;
    size_t pitch = 0, value = 0;
    start();
    void *block = memory(MALLOC, 1000);
    struct cudaExtent extent = {64, 2, 2};

    RT_CASE("cudaMalloc(NULL)", cudaMalloc(NULL, 64))
    RT_CASE("cudaMalloc(NULL,0)", cudaMalloc(NULL, 0))
    RT_CASE("cudaMalloc(NULL,huge)", cudaMalloc(NULL, SIZE_MAX))
    RT_CASE("cudaMallocAsync(NULL)", cudaMallocAsync(NULL, 64, stream))
    RT_CASE("cudaMallocAsync(NULL,0)", cudaMallocAsync(NULL, 0, stream))
    RT_CASE("cudaMallocAsync(legacy stream)", cudaMallocAsync(&p, 64, cudaStreamLegacy))
    RT_CASE("cudaMallocAsync(per-thread stream)", cudaMallocAsync(&p, 64, cudaStreamPerThread))
    RT_CASE("cudaMallocAsync(stream 0)", cudaMallocAsync(&p, 64, 0))
    RT_CASE("cudaMallocFromPoolAsync(NULL)", cudaMallocFromPoolAsync(NULL, 64, own_pool, stream))
    RT_CASE("cudaMallocFromPoolAsync(no pool)", cudaMallocFromPoolAsync(&p, 64, NULL, stream))
    RT_CASE("cudaMallocFromPoolAsync(NULL, no pool)", cudaMallocFromPoolAsync(NULL, 64, NULL, stream))
    RT_CASE("cudaMallocFromPoolAsync(no pool,0)", cudaMallocFromPoolAsync(&p, 0, NULL, stream))
    RT_CASE("cudaMallocPitch(NULL)", cudaMallocPitch(NULL, &pitch, 64, 2))
    RT_CASE("cudaMallocPitch(no pitch)", cudaMallocPitch(&p, NULL, 64, 2))
    RT_CASE("cudaMallocPitch(NULL,no pitch)", cudaMallocPitch(NULL, NULL, 64, 2))
    RT_CASE("cudaMalloc3D(NULL)", cudaMalloc3D(NULL, extent))
    RT_CASE("cudaMallocManaged(NULL)", cudaMallocManaged(NULL, 64, cudaMemAttachGlobal))
    RT_CASE("cudaMallocManaged(flags 0)", cudaMallocManaged(&p, 64, 0))
    RT_CASE("cudaMallocManaged(flags 0x80)", cudaMallocManaged(&p, 64, 0x80))
    RT_CASE("cudaMemGetInfo(NULL,NULL)", cudaMemGetInfo(NULL, NULL))
    RT_CASE("cudaMemGetInfo(NULL)", cudaMemGetInfo(NULL, &value))
    RT_CASE("cudaMemGetInfo(,NULL)", cudaMemGetInfo(&value, NULL))
    RT_CASE("cudaPointerGetAttributes(NULL)", cudaPointerGetAttributes(NULL, block))
    /* cudaIpcGetMemHandle(NULL) crashes in the runtime. */

    CU_CASE("cuMemAlloc(NULL)", cuMemAlloc(NULL, 64))
    CU_CASE("cuMemAlloc(NULL,0)", cuMemAlloc(NULL, 0))
    CU_CASE("cuMemAlloc(NULL,huge)", cuMemAlloc(NULL, SIZE_MAX))
    CU_CASE("cuMemAllocPitch(NULL)", cuMemAllocPitch(NULL, &pitch, 64, 2, 4))
    CU_CASE("cuMemAllocPitch(no pitch)", cuMemAllocPitch(&d, NULL, 64, 2, 4))
    CU_CASE("cuMemAllocPitch(NULL,no pitch)", cuMemAllocPitch(NULL, NULL, 64, 2, 4))
    CU_CASE("cuMemAllocPitch(NULL,width 0)", cuMemAllocPitch(NULL, &pitch, 0, 2, 4))
    CU_CASE("cuMemAllocManaged(NULL)", cuMemAllocManaged(NULL, 64, CU_MEM_ATTACH_GLOBAL))
    CU_CASE("cuMemAllocManaged(flags 0)", cuMemAllocManaged(&d, 64, 0))
    CU_CASE("cuMemAllocAsync(NULL)", cuMemAllocAsync(NULL, 64, stream))
    CU_CASE("cuMemAllocAsync(NULL,0)", cuMemAllocAsync(NULL, 0, stream))
    CU_CASE("cuMemAllocAsync_ptsz(NULL)", cuMemAllocAsync_ptsz(NULL, 64, stream))
    CU_CASE("cuMemAllocAsync_ptsz(stream 0)", cuMemAllocAsync_ptsz(&d, 64, 0))
    CU_CASE("cuMemFreeAsync_ptsz(stream 0)", cuMemFreeAsync_ptsz(d, 0))
    CU_CASE("cuMemAllocFromPoolAsync(NULL)", cuMemAllocFromPoolAsync(NULL, 64, own_pool, stream))
    CU_CASE("cuMemAllocFromPoolAsync(no pool)", cuMemAllocFromPoolAsync(&d, 64, NULL, stream))
    CU_CASE("cuMemAllocFromPoolAsync_ptsz(NULL)", cuMemAllocFromPoolAsync_ptsz(NULL, 64, own_pool, stream))
    CU_CASE("cuMemFreeAsync_ptsz(NULL)", cuMemFreeAsync_ptsz(0, stream))
    CU_CASE("cuMemGetInfo(NULL,NULL)", cuMemGetInfo(NULL, NULL))
    CU_CASE("cuMemGetInfo(NULL)", cuMemGetInfo(NULL, &value))
    CU_CASE("cuMemGetInfo(,NULL)", cuMemGetInfo(&value, NULL))
    CU_CASE("cuMemGetAddressRange(NULL,NULL)", cuMemGetAddressRange(NULL, NULL, (CUdeviceptr)block))
    CU_CASE("cuMemGetAddressRange(NULL)", cuMemGetAddressRange(NULL, &value, (CUdeviceptr)block))
    CU_CASE("cuMemGetAddressRange(,NULL)", cuMemGetAddressRange(&d, NULL, (CUdeviceptr)block))
    CU_CASE("cuPointerGetAttribute(NULL)", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)block))
    CU_CASE("cuPointerGetAttribute(attribute 0)", cuPointerGetAttribute(&value, (CUpointer_attribute)0, (CUdeviceptr)block))
    CU_CASE("cuPointerGetAttribute(attribute 9999)", cuPointerGetAttribute(&value, (CUpointer_attribute)9999, (CUdeviceptr)block))
    CU_CASE("cuPointerGetAttributes(0)", cuPointerGetAttributes(0, NULL, NULL, (CUdeviceptr)block))
    CU_CASE("cuPointerGetAttributes(NULL)", cuPointerGetAttributes(1, NULL, NULL, (CUdeviceptr)block))
    CU_CASE("cuIpcGetMemHandle(NULL)", cuIpcGetMemHandle(NULL, (CUdeviceptr)block))
    CU_CASE("cuDeviceGetDefaultMemPool(NULL)", cuDeviceGetDefaultMemPool(NULL, 0))
    CU_CASE("cuDeviceGetDefaultMemPool(device 99)", cuDeviceGetDefaultMemPool((CUmemoryPool *)&p, 99))
    CU_CASE("cuMemPoolTrimTo(NULL)", cuMemPoolTrimTo(NULL, 0))
}

static size_t card(void) {
    size_t unused, total = 0;
    NEED(cudaMemGetInfo(&unused, &total));
    return total;
}

/* In managed memory, more than the card is no error but a machine that swaps: never asked for. The graphs' memory takes all that
 * there is before it refuses, and keeps it. */
static bool reasonable(enum kind kind, size_t size) {
    return (kind != MANAGED && kind != DRIVER_MANAGED && kind != GRAPH) || size <= 4 * MIB || size > ((size_t)1 << 60);
}

void group_sizes(void) {
    start();
    const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        {"0", 0},
        {"1", 1},
        {"511", 511},
        {"512", 512},
        {"1MiB", MIB},
        {"1MiB+1", MIB + 1},
        {"2MiB-1", 2 * MIB - 1},
        {"2MiB", 2 * MIB},
        {"2MiB+1", 2 * MIB + 1},
        {"card+2MiB", card() + 2 * MIB},
        {"2^48", (size_t)1 << 48},
        {"2^60", (size_t)1 << 60},
        {"2^63", (size_t)1 << 63},
        {"SIZE_MAX-2MiB", SIZE_MAX - 2 * MIB},
        {"SIZE_MAX-511", SIZE_MAX - 511},
        {"SIZE_MAX", SIZE_MAX},
    };
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            void *p = KEPT;
            if (!reasonable(k, sizes[i].size))
                continue;
            begin("%s(%s)", kind_name[k], sizes[i].name);
            say_outcome(take(k, &p, sizes[i].size));
            say("%s", pointer(p));
            if (p != KEPT) {
                cudaError_t freed = cudaFree(p);
                say("free=%s", rt(freed));
            }
            end();
            NEED(cudaDeviceSynchronize()); /* what a pool has too much goes back */
            NEED(cudaDeviceGraphMemTrim(0));
            cudaGetLastError();
        }
    }
    void *p = KEPT;
    cudaError_t error = cudaMalloc(&p, 64);
    line("a small block after all that", "%s %s %s", rt(error), last(error), pointer(p));
}

void group_alignment(void) {
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"1", 1},       {"100", 100},  {"256", 256},      {"512", 512},      {"1000", 1000},
                 {"4096", 4096}, {"1MiB", MIB}, {"2MiB", 2 * MIB}, {"3MiB", 3 * MIB}, {"5MiB+1", 5 * MIB + 1}};
    start();
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            /* Several, as one alone may lie well by chance. */
            uintptr_t bits = 0;
            void *blocks[5];
            for (size_t b = 0; b < COUNT_OF(blocks); b++)
                bits |= (uintptr_t)(blocks[b] = memory(k, sizes[i].size));
            begin("%s(%s)", kind_name[k], sizes[i].name);
            say("256 %s, 512 %s", yes_no(bits % 256 == 0), yes_no(bits % 512 == 0));
            end();
            for (size_t b = 0; b < COUNT_OF(blocks); b++)
                drop(blocks[b]);
        }
    }
}

void group_pitches(void) {
    static const size_t widths[] = {0, 1, 100, 511, 512, 513, 1000, 4096, 4097, 100000};
    static const unsigned elements[] = {0, 1, 2, 3, 4, 5, 8, 16, 32};
    static const struct {
        const char *name;
        size_t width, height;
    } huge[] = {{"width SIZE_MAX", SIZE_MAX, 1},
                {"height SIZE_MAX", 100, SIZE_MAX},
                {"2^32 x 2^32", (size_t)1 << 32, (size_t)1 << 32},

                {"height 0", 100, 0}};
    start();
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        void *p = KEPT;
        size_t pitch = 7;
        begin("cudaMallocPitch(%zu x 10)", widths[i]);
        say_rt(cudaMallocPitch(&p, &pitch, widths[i], 10));
        say("%s pitch=%zu", pointer(p), pitch);
        end();
        drop(p == KEPT ? NULL : p);
        struct cudaPitchedPtr volume = {KEPT, 7, 7, 7};
        begin("cudaMalloc3D(%zu x 10 x 3)", widths[i]);
        say_rt(cudaMalloc3D(&volume, (struct cudaExtent){widths[i], 10, 3}));
        say("%s pitch=%zu xsize=%zu ysize=%zu", pointer(volume.ptr), volume.pitch, volume.xsize, volume.ysize);
        end();
        drop(volume.ptr == KEPT ? NULL : volume.ptr);
    }
    for (size_t i = 0; i < COUNT_OF(elements); i++) {
        CUdeviceptr d = (CUdeviceptr)KEPT;
        size_t pitch = 7;
        begin("cuMemAllocPitch(element %u)", elements[i]);
        say_cu(cuMemAllocPitch(&d, &pitch, 513, 10, elements[i]));
        say("%s pitch=%zu", pointer((void *)d), pitch);
        end();
        drop(d == (CUdeviceptr)KEPT ? NULL : (void *)d);
    }
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        void *p = KEPT;
        size_t pitch = 7;
        begin("cudaMallocPitch(%s)", huge[i].name);
        say_rt(cudaMallocPitch(&p, &pitch, huge[i].width, huge[i].height));
        say("%s", pointer(p));
        end();
        drop(p == KEPT ? NULL : p);
        CUdeviceptr d = (CUdeviceptr)KEPT;
        begin("cuMemAllocPitch(%s)", huge[i].name);
        say_cu(cuMemAllocPitch(&d, &pitch, huge[i].width, huge[i].height, 4));
        say("%s", pointer((void *)d));
        end();
        drop(d == (CUdeviceptr)KEPT ? NULL : (void *)d);
    }
    struct cudaPitchedPtr volume = {KEPT, 7, 7, 7};
    begin("cudaMalloc3D(extent overflows)");
    say_rt(cudaMalloc3D(&volume, (struct cudaExtent){(size_t)1 << 30, (size_t)1 << 30, (size_t)1 << 30}));
    say("%s", pointer(volume.ptr));
    end();
}
