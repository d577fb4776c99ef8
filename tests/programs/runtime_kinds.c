/*
 * Allocates and frees with one kind of runtime call, a few rounds, checks the memory and says what a counter in between should
 * have seen.
 *
 * Also built as a plugin (-DPLUGIN), whose entry is plugin_run: then the runtime lives in a library that was opened with
 * RTLD_LOCAL.
 */
#include "runtime.h"

#define ROUNDS 4
#define SIZE ((size_t)100000)

struct piece {
    void *memory;
    size_t bytes; /* what the driver was asked for */
};

static struct piece take_malloc(cudaStream_t stream) {
    (void)stream;
    struct piece piece = {.bytes = SIZE};
    RT(cudaMalloc(&piece.memory, SIZE));
    return piece;
}

static struct piece take_async(cudaStream_t stream) {
    struct piece piece = {.bytes = SIZE};
    RT(cudaMallocAsync(&piece.memory, SIZE, stream));
    return piece;
}

static struct piece take_pitch(cudaStream_t stream) {
    (void)stream;
    struct piece piece;
    size_t pitch;
    RT(cudaMallocPitch(&piece.memory, &pitch, 100, 7));
    if (pitch < 100)
        die("pitch below width");
    piece.bytes = pitch * 7;
    return piece;
}

static struct piece take_3d(cudaStream_t stream) {
    (void)stream;
    struct cudaPitchedPtr pitched;
    RT(cudaMalloc3D(&pitched, (struct cudaExtent){100, 7, 3}));
    if (pitched.pitch < 100)
        die("pitch below width");
    return (struct piece){pitched.ptr, pitched.pitch * 7 * 3};
}

static struct piece take_managed(cudaStream_t stream) {
    (void)stream;
    struct piece piece = {.bytes = SIZE};
    RT(cudaMallocManaged(&piece.memory, SIZE, cudaMemAttachGlobal));
    return piece;
}

static struct piece take_from_pool(cudaStream_t stream) {
    struct piece piece = {.bytes = SIZE};
    cudaMemPool_t pool;
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT(cudaMallocFromPoolAsync(&piece.memory, SIZE, pool, stream));
    return piece;
}

static void give_free(void *memory, cudaStream_t stream) {
    (void)stream;
    RT(cudaFree(memory));
}

static void give_async(void *memory, cudaStream_t stream) {
    RT(cudaFreeAsync(memory, stream));
}

static const struct kind {
    const char *name;
    struct piece (*take)(cudaStream_t);
    void (*give)(void *, cudaStream_t);
} kinds[] = {
    {"malloc", take_malloc, give_free},
    {"async", take_async, give_async},
    {"pitch", take_pitch, give_free},
    {"3d", take_3d, give_free},
    {"managed", take_managed, give_free},
    {"from_pool", take_from_pool, give_async},
    {"malloc_freed_async", take_malloc, give_async},
    {"async_freed_sync", take_async, give_free},
};

static void run_kind(const struct kind *kind) {
    cudaStream_t created = new_stream(cudaStreamNonBlocking);
    size_t peak = 0;
    for (int round = 0; round < ROUNDS; round++) {
        /* The default stream and a created one by turns: the default one has two flavours that must not be confused. */
        cudaStream_t stream = round % 2 ? created : NULL;
        struct piece piece = kind->take(stream);
        unsigned char *copy = malloc(piece.bytes);
        RT(cudaMemsetAsync(piece.memory, 0x40 + round, piece.bytes, stream));
        RT(cudaMemcpyAsync(copy, piece.memory, piece.bytes, cudaMemcpyDeviceToHost, stream));
        RT(cudaStreamSynchronize(stream));
        if (wrong_bytes(copy, 0x40 + round, piece.bytes))
            die("%s: wrong data in round %d", kind->name, round);
        free(copy);
        kind->give(piece.memory, stream);
        RT(cudaStreamSynchronize(stream));
        peak = piece.bytes > peak ? piece.bytes : peak;
    }
    RT(cudaStreamDestroy(created));
    RT(cudaDeviceSynchronize());
    printf("%s: right\n", kind->name);
    printf("expect allocations=%d frees=%d peak_live_bytes=%zu live_blocks=0 live_bytes=0 failed=0\n", ROUNDS, ROUNDS, peak);
}

static int run_named(const char *name) {
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            run_kind(&kinds[i]);
            return 0;
        }
    }
    fprintf(stderr, "unknown kind %s\n", name);
    return 2;
}

#ifdef PLUGIN
__attribute__((visibility("default"))) cudaError_t plugin_alloc(void **memory, size_t size);
cudaError_t plugin_alloc(void **memory, size_t size) {
    return cudaMalloc(memory, size);
}

__attribute__((visibility("default"))) int plugin_run(const char *name);
int plugin_run(const char *name) {
    int version = 0, status;
    void *memory;
    RT(cudaRuntimeGetVersion(&version));
    printf("runtime %d\n", version / 1000);
    status = run_named(name);
    /* The error is in the runtime that was called, where this plugin looks for it, and in no other plugin's. */
    cudaError_t before = cudaGetLastError(), error = cudaMalloc(&memory, (size_t)1 << 48);
    printf("errors: %s, %s", cudaGetErrorName(before), cudaGetErrorName(error));
    printf(", %s", cudaGetErrorName(cudaGetLastError()));
    printf(", %s\n", cudaGetErrorName(cudaGetLastError()));
    return status;
}
#else
int main(int argc, char **argv) {
    return run_named(argc > 1 ? argv[1] : "malloc");
}
#endif
