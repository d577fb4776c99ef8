/*
 * A block is freed while a kernel still writes it, and its successor is written at once on an unrelated stream.
 *
 * CUDA's cudaFree returns only when the kernel is done, so the successor's data survives; whoever reuses memory earlier loses it.
 * Argument: which stream the kernel ran on, or "all". "host": whether the work of every stream was over when cudaFree returned.
 */
#include "runtime.h"

#define OLD 0x11
#define NEW 0x22

static const size_t sizes[] = {4 * KIB, 256 * KIB, 4 * MIB};

/* The thread's own default stream lives and dies with it; its work may outlive it. */
static void *fill_from_thread(void *memory) {
    slow_fill(memory, OLD, 4 * KIB, cudaStreamPerThread, KERNEL_MS);
    return NULL;
}

static void fill_legacy(void *memory, size_t size) {
    slow_fill(memory, OLD, size, cudaStreamLegacy, KERNEL_MS);
}

static void fill_per_thread(void *memory, size_t size) {
    slow_fill(memory, OLD, size, cudaStreamPerThread, KERNEL_MS);
}

static void fill_default(void *memory, size_t size) {
    slow_fill(memory, OLD, size, 0, KERNEL_MS);
}

static void fill_and_destroy(void *memory, size_t size, cudaStream_t stream) {
    slow_fill(memory, OLD, size, stream, KERNEL_MS);
    /* The stream goes, its pending work does not. */
    RT(cudaStreamDestroy(stream));
}

static void fill_blocking(void *memory, size_t size) {
    fill_and_destroy(memory, size, new_stream(cudaStreamDefault));
}

static void fill_priority(void *memory, size_t size) {
    int least, greatest;
    cudaStream_t stream;
    RT(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    RT(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    fill_and_destroy(memory, size, stream);
}

static void fill_non_blocking(void *memory, size_t size) {
    static cudaStream_t stream;
    if (!stream)
        stream = new_stream(cudaStreamNonBlocking);
    slow_fill(memory, OLD, size, stream, KERNEL_MS);
}

static void fill_exited_thread(void *memory, size_t size) {
    (void)size;
    pthread_t thread;
    start_thread(&thread, fill_from_thread, memory);
    pthread_join(thread, NULL);
}

static void fill_behind_event(void *memory, size_t size) {
    cudaStream_t first = new_stream(cudaStreamNonBlocking), second = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    delay(first, KERNEL_MS);
    RT(cudaEventRecord(event, first));
    RT(cudaStreamWaitEvent(second, event, 0));
    RT(cudaMemsetAsync(memory, OLD, size, second));
    RT(cudaEventDestroy(event));
    RT(cudaStreamDestroy(first));
    RT(cudaStreamDestroy(second));
}

static const struct stream_kind {
    const char *name;
    void (*fill)(void *, size_t);
} stream_kinds[] = {
    {"non-blocking", fill_non_blocking},
    {"legacy", fill_legacy},
    {"default", fill_default},
    {"blocking", fill_blocking},
    {"per-thread", fill_per_thread},
    {"priority", fill_priority},
    {"exited-thread", fill_exited_thread},
    {"behind-event", fill_behind_event},
};

/* Frees from another thread than the one that launched. */
static void *free_in_thread(void *memory) {
    RT(cudaFree(memory));
    return NULL;
}

static bool successor_keeps_data(const struct stream_kind *kind, size_t size, bool other_thread) {
    static cudaStream_t mine;
    void *old, *new;
    if (!mine)
        mine = new_stream(cudaStreamNonBlocking);
    RT(cudaMalloc(&old, size));
    kind->fill(old, size);
    if (other_thread) {
        pthread_t thread;
        start_thread(&thread, free_in_thread, old);
        pthread_join(thread, NULL);
    } else {
        RT(cudaFree(old));
    }
    RT(cudaMalloc(&new, size));
    RT(cudaMemsetAsync(new, NEW, size, mine));
    bool kept = wrong_on_device(new, NEW, size) == 0;
    RT(cudaFree(new));
    return kept;
}

/* Many large blocks at once: more than an allocator would rather replace by new memory than order behind the old kernels. */
#define CROWD 8
#define LARGE (20 * MIB)
#define SEEN (64 * KIB)

static bool crowd_keeps_data(void) {
    void *old[CROWD], *new[CROWD];
    bool kept = true;
    cudaStream_t mine = new_stream(cudaStreamNonBlocking);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CROWD; i++) {
            cudaStream_t stream = new_stream(cudaStreamNonBlocking);
            RT(cudaMalloc(&old[i], LARGE));
            fill_and_destroy(old[i], SEEN, stream);
        }
        for (int i = 0; i < CROWD; i++)
            RT(cudaFree(old[i]));
        for (int i = 0; i < CROWD; i++) {
            RT(cudaMalloc(&new[i], LARGE));
            RT(cudaMemsetAsync(new[i], NEW, SEEN, mine));
        }
        for (int i = 0; i < CROWD; i++)
            kept &= wrong_on_device(new[i], NEW, SEEN) == 0;
        for (int i = 0; i < CROWD; i++)
            RT(cudaFree(new[i]));
    }
    return kept;
}

static void CUDART_CB work_to_host(void *done) {
    sleep_ms(KERNEL_MS);
    __atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
}

static void host_sees_work_done(void) {
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        cudaStream_t stream = new_stream(cudaStreamNonBlocking);
        bool done = false;
        void *memory;
        RT(cudaMalloc(&memory, sizes[s]));
        RT(cudaLaunchHostFunc(stream, work_to_host, &done));
        RT(cudaFree(memory));
        printf("%zu bytes: work done when cudaFree returned: %s\n", sizes[s], yes_no(__atomic_load_n(&done, __ATOMIC_ACQUIRE)));
        RT(cudaStreamSynchronize(stream));
        RT(cudaStreamDestroy(stream));
    }
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "non-blocking";
    for (size_t k = 0; k < COUNT_OF(stream_kinds); k++) {
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, stream_kinds[k].name) != 0)
            continue;
        bool kept = true;
        for (size_t s = 0; s < COUNT_OF(sizes); s++)
            kept &= successor_keeps_data(&stream_kinds[k], sizes[s], s == 1);
        printf("%s: old kernel done before new owner's write: %s\n", stream_kinds[k].name, yes_no(kept));
    }
    if (strcmp(wanted, "host") == 0)
        host_sees_work_done();
    if (strcmp(wanted, "all") == 0 || strcmp(wanted, "crowd") == 0)
        printf("crowd: old kernel done before new owner's write: %s\n", yes_no(crowd_keeps_data()));
    return 0;
}
