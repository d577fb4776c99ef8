/*
 * Memory freed in stream order while its stream still works on it, and its possible next owners: other streams, threads, plain
 * cudaMalloc.
 *
 * Stream-ordered memory belongs to the work before the free; whoever hands it on earlier loses the next owner's data. Argument: a
 * case, or "all".
 */
#include "runtime.h"

#define OLD 0x31
#define NEW 0x42

static cudaStream_t s1, s2;

static void take_async(void **memory, size_t size, cudaStream_t stream) {
    RT(cudaMallocAsync(memory, size, stream));
}

static void take_sync(void **memory, size_t size, cudaStream_t stream) {
    (void)stream;
    RT(cudaMalloc(memory, size));
}

static void give_async(void *memory, cudaStream_t stream) {
    RT(cudaFreeAsync(memory, stream));
}

/* CUDA lets the program free stream-ordered memory by cudaFree once it is idle. */
static void give_sync(void *memory, cudaStream_t stream) {
    RT(cudaStreamSynchronize(stream));
    RT(cudaFree(memory));
}

typedef void take_function(void **, size_t, cudaStream_t);
typedef void give_function(void *, cudaStream_t);

static bool keeps_data(take_function *first, cudaStream_t owner, give_function *give, take_function *second, cudaStream_t next,
                       size_t size) {
    void *old, *new;
    first(&old, size, owner);
    slow_fill(old, OLD, size, owner, KERNEL_MS / 2);
    give(old, owner);
    second(&new, size, next);
    RT(cudaMemsetAsync(new, NEW, size, next));
    bool kept = wrong_on_device(new, NEW, size) == 0;
    RT(cudaFree(new));
    return kept;
}

static void *allocate_in_thread(void *kept) {
    void *new;
    RT(cudaMallocAsync(&new, 64 * KIB, cudaStreamPerThread));
    RT(cudaMemsetAsync(new, NEW, 64 * KIB, cudaStreamPerThread));
    *(bool *)kept = wrong_on_device(new, NEW, 64 * KIB) == 0;
    RT(cudaFreeAsync(new, cudaStreamPerThread));
    RT(cudaStreamSynchronize(cudaStreamPerThread));
    return NULL;
}

/* Both threads call their stream by the same handle value, and mean two streams. */
static bool two_threads(void) {
    pthread_t thread;
    void *old;
    bool kept = false;
    RT(cudaMallocAsync(&old, 64 * KIB, cudaStreamPerThread));
    slow_fill(old, OLD, 64 * KIB, cudaStreamPerThread, KERNEL_MS);
    RT(cudaFreeAsync(old, cudaStreamPerThread));
    start_thread(&thread, allocate_in_thread, &kept);
    pthread_join(thread, NULL);
    return kept;
}

/* A stream is destroyed with a free pending; its handle may come back for another stream, whose owner is no heir. */
static bool handle_again(void) {
    void *old, *new;
    cudaStream_t gone = new_stream(cudaStreamNonBlocking);
    RT(cudaMallocAsync(&old, 64 * KIB, gone));
    slow_fill(old, OLD, 64 * KIB, gone, KERNEL_MS);
    RT(cudaFreeAsync(old, gone));
    RT(cudaStreamDestroy(gone));
    cudaStream_t born = new_stream(cudaStreamNonBlocking);
    RT(cudaMallocAsync(&new, 64 * KIB, born));
    RT(cudaMemsetAsync(new, NEW, 64 * KIB, born));
    bool kept = wrong_on_device(new, NEW, 64 * KIB) == 0;
    RT(cudaFreeAsync(new, born));
    RT(cudaStreamDestroy(born));
    return kept;
}

static bool pair(take_function *first, cudaStream_t owner, give_function *give, take_function *second, cudaStream_t next) {
    return keeps_data(first, owner, give, second, next, 64 * KIB) && keeps_data(first, owner, give, second, next, 3 * MIB);
}

static bool async_to_async(void) {
    return pair(take_async, s1, give_async, take_async, s2);
}
static bool async_to_sync(void) {
    return pair(take_async, s1, give_async, take_sync, s2);
}
static bool sync_to_async(void) {
    return pair(take_sync, s1, give_async, take_async, s2);
}
static bool sync_to_sync(void) {
    return pair(take_sync, s1, give_async, take_sync, s2);
}
static bool same_stream(void) {
    return pair(take_async, s1, give_async, take_async, s1);
}
static bool freed_by_free(void) {
    return pair(take_async, s1, give_sync, take_async, s2);
}
static bool default_to_stream(void) {
    return pair(take_async, NULL, give_async, take_async, s2);
}
static bool legacy_to_stream(void) {
    return pair(take_async, cudaStreamLegacy, give_async, take_async, s2);
}
static bool per_thread_to_stream(void) {
    return pair(take_async, cudaStreamPerThread, give_async, take_async, s2);
}
static bool stream_to_default(void) {
    return pair(take_async, s1, give_async, take_async, NULL);
}

static const struct reuse_case {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"async-to-async", async_to_async},
    {"async-to-sync", async_to_sync},
    {"sync-to-async", sync_to_async},
    {"sync-to-sync", sync_to_sync},
    {"same-stream", same_stream},
    {"freed-by-cudaFree", freed_by_free},
    {"default-to-stream", default_to_stream},
    {"legacy-to-stream", legacy_to_stream},
    {"per-thread-to-stream", per_thread_to_stream},
    {"stream-to-default", stream_to_default},
    {"two-threads", two_threads},
    {"handle-again", handle_again},
};

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "all";
    s1 = new_stream(cudaStreamNonBlocking);
    s2 = new_stream(cudaStreamNonBlocking);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (strcmp(wanted, "all") == 0 || strcmp(wanted, cases[i].name) == 0)
            printf("%s: next owner keeps its data: %s\n", cases[i].name, yes_no(cases[i].run()));
    RT(cudaDeviceSynchronize());
    return 0;
}
