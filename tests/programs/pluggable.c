/*
 * Calls cuplug as PyTorch and CuPy do: by the addresses of its functions in a library that was opened, not preloaded (argument: its path), or preloaded as
 * well. Memory comes back in stream order, to other streams only when the work is done, and not at all while a graph may use it.
 */
#include "runtime.h"
#include "shim/cuplug.h"
#include <dlfcn.h>

#define SIZE (4 * MIB)
#define LARGE (20 * MIB)
#define OLD 0x11
#define NEW 0x22

static void *library;
static __typeof__(cuplug_torch_malloc) *take;
static __typeof__(cuplug_torch_free) *give;

static void *function(const char *name) {
    void *address = dlsym(library, name);
    if (!address)
        die("%s", dlerror());
    return address;
}

static long long stat(const char *name) {
    long long value = -1;
    ((__typeof__(cuplug_get_stat) *)function("cuplug_get_stat"))(name, 0, &value);
    return value;
}

/* The next owner on another stream writes only after the old kernel. */
static bool other_stream_keeps_data(bool record_stream) {
    cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking), c = new_stream(cudaStreamNonBlocking);
    bool kept = true;
    for (int i = 0; i < 4; i++) {
        void *old = take(SIZE, 0, a);
        if (record_stream)
            ((__typeof__(cuplug_torch_record_stream) *)function("cuplug_torch_record_stream"))(old, c);
        slow_fill(old, OLD, SIZE, record_stream ? c : a, KERNEL_MS);
        give(old, SIZE, 0, a);
        void *new = take(SIZE, 0, record_stream ? a : b);
        RT(cudaMemsetAsync(new, NEW, SIZE, record_stream ? a : b));
        kept &= wrong_on_device(new, NEW, SIZE) == 0;
        give(new, SIZE, 0, record_stream ? a : b);
    }
    RT(cudaDeviceSynchronize());
    return kept;
}

/* Memory taken, used and freed in a capture stays the graph's until its pool is released; the capture is not spoiled. */
static void captured(void) {
    struct cuplug_torch_pool pool = {{7, 9}};
    cudaStream_t stream = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    unsigned char *result;
    size_t shared = 0, wrong = 0;
    void *later[8];
    RT(cudaMallocHost((void **)&result, SIZE));
    ((__typeof__(cuplug_torch_begin_allocate_to_pool) *)function("cuplug_torch_begin_allocate_to_pool"))(0, pool, NULL);
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    void *memory = take(SIZE, 0, stream);
    RT(cudaMemsetAsync(memory, OLD, SIZE, stream));
    RT(cudaMemcpyAsync(result, memory, SIZE, cudaMemcpyDeviceToHost, stream));
    give(memory, SIZE, 0, stream);
    void *beside = take(SIZE, 0, other);
    give(beside, SIZE, 0, other);
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    printf("capture: %s\n", cudaGetErrorName(end));
    ((__typeof__(cuplug_torch_end_allocate_to_pool) *)function("cuplug_torch_end_allocate_to_pool"))(0, pool);
    if (end != cudaSuccess)
        return;
    RT(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 8; i++) {
        later[i] = take(SIZE, 0, i % 2 ? stream : other);
        shared += later[i] == memory;
        RT(cudaMemset(later[i], NEW, SIZE));
    }
    for (int i = 0; i < 3; i++) {
        RT(cudaGraphLaunch(executable, stream));
        RT(cudaStreamSynchronize(stream));
        wrong += wrong_bytes(result, OLD, SIZE);
    }
    for (int i = 0; i < 8; i++) {
        wrong += wrong_on_device(later[i], NEW, SIZE);
        give(later[i], SIZE, 0, i % 2 ? stream : other);
    }
    printf("graph memory handed out: %zu, wrong bytes %zu\n", shared, wrong);
    RT(cudaGraphExecDestroy(executable));
    RT(cudaGraphDestroy(graph));
    long long before = stat("live_blocks");
    ((__typeof__(cuplug_torch_release_pool) *)function("cuplug_torch_release_pool"))(0, pool);
    printf("given back with the pool: %lld\n", before - stat("live_blocks"));
}

static void *many(void *arg) {
    uint32_t state = 3 + (uint32_t)(intptr_t)arg;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    void *held[16] = {0};
    for (int i = 0; i < 2000; i++) {
        unsigned slot = next_random(&state) % COUNT_OF(held), size = 1 + next_random(&state) % (1 << 20);
        if (held[slot])
            give(held[slot], 1, 0, stream);
        held[slot] = take(size, 0, stream);
        RT(cudaMemsetAsync(held[slot], 1, size, stream));
        if (i % 100 == 0)
            RT(cudaStreamSynchronize(stream));
    }
    RT(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT_OF(held); i++)
        give(held[i], 1, 0, stream);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    library = dlopen(argc > 1 ? argv[1] : "libcuplug.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die("%s", dlerror());
    take = (__typeof__(take))function("cuplug_torch_malloc");
    give = (__typeof__(give))function("cuplug_torch_free");
    RT(cudaFree(NULL));
    printf("nothing: %s %s\n", take(0, 0, NULL) ? "?" : "NULL", take(-1, 0, NULL) ? "?" : "NULL");
    give(NULL, 0, 0, NULL);
    void *first = take(100, 0, NULL);
    RT(cudaMemset(first, 1, 100));
    printf("memory: wrong bytes %zu, backend %s\n", wrong_on_device(first, 1, 100),
           ((__typeof__(cuplug_get_backend) *)function("cuplug_get_backend"))());
    size_t size = 0;
    void *base = ((__typeof__(cuplug_torch_base_alloc) *)function("cuplug_torch_base_alloc"))(first, &size);
    printf("base: %s\n", yes_no(base && (char *)base <= (char *)first && (char *)first + 100 <= (char *)base + size));
    give(first, 100, 0, NULL);
    printf("too much: %s\n", take((ssize_t)1 << 48, 0, NULL) ? "?" : "NULL");
    printf("another stream: %s, a recorded stream: %s\n", yes_no(other_stream_keeps_data(false)), yes_no(other_stream_keeps_data(true)));
    captured();
    for (intptr_t i = 0; i < 4; i++)
        start_thread(&threads[i], many, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    __typeof__(cuplug_torch_memory_fraction) *fraction = (__typeof__(fraction))function("cuplug_torch_memory_fraction");
    fraction(1e-6, 0);
    printf("within a small fraction: %s\n", take(64 << 20, 0, NULL) ? "?" : "NULL");
    fraction(1, 0);
    __typeof__(cuplug_cupy_malloc) *cupy_take = (__typeof__(cupy_take))function("cuplug_cupy_malloc");
    __typeof__(cuplug_cupy_free) *cupy_give = (__typeof__(cupy_give))function("cuplug_cupy_free");
    bool kept = true;
    void *old[8], *new[8];
    cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < 8; i++) /* so many that an allocator would rather order them behind the old kernels than take new memory */
        old[i] = cupy_take(NULL, LARGE, 0);
    for (int i = 0; i < 8; i++)
        slow_fill(old[i], OLD, SIZE, a, KERNEL_MS / 4);
    for (int i = 0; i < 8; i++)
        cupy_give(NULL, old[i], 0);
    for (int i = 0; i < 8; i++) {
        new[i] = cupy_take(NULL, LARGE, 0);
        RT(cudaMemsetAsync(new[i], NEW, SIZE, b));
    }
    for (int i = 0; i < 8; i++) {
        kept &= wrong_on_device(new[i], NEW, SIZE) == 0;
        cupy_give(NULL, new[i], 0);
    }
    printf("CuPy's: old kernel done before new owner's write: %s\n", yes_no(kept));
    ((__typeof__(cuplug_torch_reset) *)function("cuplug_torch_reset"))();
    printf("live at the end: %lld, pending error: %s\n", stat("live_blocks"), cudaGetErrorName(cudaGetLastError()));
    return 0;
}
