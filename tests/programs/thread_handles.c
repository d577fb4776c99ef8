/*
 * Two threads and the names that streams have without being made: 0, 1 (legacy) and 2 (per thread), each through the plain entry
 * points and through those of programs built with per-thread default streams (_ptsz), where 0 means the thread's own. One thread
 * frees a block that its kernel still writes, the other allocates: by whatever names they call their streams, no block is the
 * second thread's before that kernel is done.
 */
#include "driver.h"

#define SIZE (64 * KIB)
#define OLD 0x31
#define NEW 0x42
#define BLOCKS 3 /* of the next owner: the old one's is among them if it is to be had */
#define SLOW_MS 8

/* cuda.h names them only for programs that use nothing else. */
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *memory, size_t size, CUstream stream);
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr memory, CUstream stream);
CUresult CUDAAPI cuMemsetD8Async_ptsz(CUdeviceptr memory, unsigned char value, size_t count, CUstream stream);
CUresult CUDAAPI cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *argument);
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream);

static const struct name {
    const char *text;
    CUstream handle;
    CUresult(CUDAAPI *alloc)(CUdeviceptr *, size_t, CUstream);
    CUresult(CUDAAPI *free)(CUdeviceptr, CUstream);
    CUresult(CUDAAPI *fill)(CUdeviceptr, unsigned char, size_t, CUstream);
    CUresult(CUDAAPI *launch)(CUstream, CUhostFn, void *);
    CUresult(CUDAAPI *synchronize)(CUstream);
} names[] = {
#define PLAIN(handle)                                                                                                            \
    { #handle, handle, cuMemAllocAsync, cuMemFreeAsync, cuMemsetD8Async, cuLaunchHostFunc, cuStreamSynchronize }
#define PTSZ(handle)                                                                                                             \
    {                                                                                                                            \
#handle "_ptsz", handle, cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz, cuMemsetD8Async_ptsz, cuLaunchHostFunc_ptsz,         \
            cuStreamSynchronize_ptsz                                                                                             \
    }
    PLAIN(NULL), PLAIN(CU_STREAM_LEGACY), PLAIN(CU_STREAM_PER_THREAD),
    PTSZ(NULL),  PTSZ(CU_STREAM_LEGACY),  PTSZ(CU_STREAM_PER_THREAD),
#undef PLAIN
#undef PTSZ
};

static CUcontext context;
static pthread_barrier_t turn;

static void free_while_written(const struct name *name) {
    CUdeviceptr memory;
    CU(name->alloc(&memory, SIZE, name->handle));
    CU(name->launch(name->handle, sleep_in_stream, (void *)(intptr_t)SLOW_MS));
    CU(name->fill(memory, OLD, SIZE, name->handle));
    CU(name->free(memory, name->handle));
}

/* True if the next owner finds what it wrote, after all work of both threads. */
static bool keeps_data(const struct name *name) {
    CUdeviceptr memory[BLOCKS];
    size_t wrong = 0;
    for (int i = 0; i < BLOCKS; i++) {
        CU(name->alloc(&memory[i], SIZE, name->handle));
        CU(name->fill(memory[i], NEW, SIZE, name->handle));
    }
    CU(name->synchronize(name->handle));
    for (int i = 0; i < BLOCKS; i++)
        wrong += wrong_on_device(memory[i], NEW, SIZE);
    for (int i = 0; i < BLOCKS; i++)
        CU(name->free(memory[i], name->handle));
    return wrong == 0;
}

static void *first_owner(void *argument) {
    (void)argument;
    CU(cuCtxSetCurrent(context));
    for (size_t i = 0; i < COUNT_OF(names) * COUNT_OF(names); i++) {
        pthread_barrier_wait(&turn);
        free_while_written(&names[i / COUNT_OF(names)]);
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static int beside_each_other(void) {
    pthread_t thread;
    int wrong = 0;
    start_thread(&thread, first_owner, NULL);
    for (size_t i = 0; i < COUNT_OF(names) * COUNT_OF(names); i++) {
        const struct name *next = &names[i % COUNT_OF(names)];
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        if (keeps_data(next))
            continue;
        printf("freed on %s, allocated on another thread's %s: lost its data\n", names[i / COUNT_OF(names)].text, next->text);
        wrong++;
    }
    pthread_join(thread, NULL);
    return wrong;
}

static void *free_and_end(void *name) {
    CU(cuCtxSetCurrent(context));
    free_while_written(name);
    return NULL;
}

struct heir {
    const struct name *name;
    bool fine;
};

static void *inherit(void *argument) {
    struct heir *heir = argument;
    CU(cuCtxSetCurrent(context));
    heir->fine = keeps_data(heir->name);
    return NULL;
}

/* The next thread has the stack, the id and the thread-local storage of the one that ended, but not its stream. */
static int one_after_the_other(void) {
    int wrong = 0;
    for (size_t i = 0; i < COUNT_OF(names) * COUNT_OF(names); i++) {
        struct heir heir = {&names[i % COUNT_OF(names)], false};
        pthread_t thread;
        start_thread(&thread, free_and_end, (void *)&names[i / COUNT_OF(names)]);
        pthread_join(thread, NULL);
        start_thread(&thread, inherit, &heir);
        pthread_join(thread, NULL);
        if (heir.fine)
            continue;
        printf("freed on %s, allocated on the next thread's %s: lost its data\n", names[i / COUNT_OF(names)].text,
               heir.name->text);
        wrong++;
    }
    return wrong;
}

int main(void) {
    context = use_primary(0);
    pthread_barrier_init(&turn, NULL, 2);
    printf("two threads' handles: wrong pairs %d\n", beside_each_other());
    printf("a thread's handles and the next one's: wrong pairs %d\n", one_after_the_other());
    return 0;
}
