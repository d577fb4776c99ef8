/*
 * checker.c: a plugin, and a pair of functions, that remembers what each allocation had and compares it with what its free gets.
 * It says at the end, in the file CHECKER_OUT, how many frees it saw and how many were wrong in what. Addresses are never used
 * twice, so a wrong one is never a right one by chance.
 */
#define CUPLUG_PLUGIN
#include <cuplug/backend.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 18, GRAIN = 4096, DEVICES = 2 };
#define REGION ((size_t)1 << 30)

struct seen {
    CUdeviceptr pointer;
    int live;
    struct cuplug_block block; /* as alloc left it; a pair's has size, device and stream only */
};

enum wrong { UNKNOWN, TWICE, SIZE, DEVICE, STREAM, ALIGNMENT, CONTEXT, COOKIE, KIND, STRUCTURE, ORDER, WRONG };
static const char *const words[WRONG] = {"unknown", "twice",  "size", "device",    "stream", "alignment",
                                         "context", "cookie", "kind", "structure", "order"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen *table;
static CUdeviceptr region[DEVICES];
static size_t used[DEVICES];
static unsigned long allocations, frees, streams, orphans, wrong[WRONG];

void *checker_alloc(size_t size, int device, CUstream stream);
void checker_free(void *pointer, size_t size, int device, CUstream stream);

/* The slot of a pointer, or an empty one. */
static struct seen *slot(CUdeviceptr pointer) {
    size_t i = (size_t)(pointer / GRAIN * 0x9e3779b97f4a7c15u >> 46);

    while (table[i].pointer && table[i].pointer != pointer)
        i = (i + 1) % SLOTS;
    return &table[i];
}

/* New addresses, of which nothing is ever used again. */
static CUdeviceptr place(size_t size, int device) {
    CUdeviceptr pointer = 0;

    if (!table && !(table = calloc(SLOTS, sizeof *table)))
        return 0;
    size = (size + GRAIN - 1) / GRAIN * GRAIN;
    if (device < 0 || device >= DEVICES || (!region[device] && cuMemAlloc(&region[device], REGION) != CUDA_SUCCESS))
        return 0;
    if (size <= REGION - used[device]) {
        pointer = region[device] + used[device];
        used[device] += size;
    }
    return pointer;
}

static CUresult checker_backend_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    CUcontext current = NULL;

    pthread_mutex_lock(&lock);
    block->pointer = place(request->size, request->device);
    if (block->pointer) {
        struct seen *seen = slot(block->pointer);

        cuCtxGetCurrent(&current);
        block->cookie = seen;
        *seen = (struct seen){block->pointer, 1, *block};
        allocations++;
        streams += request->kind == CUPLUG_ASYNC;
        wrong[STRUCTURE] += request->struct_size < sizeof *request || block->struct_size < sizeof *block || self != (void *)table;
        wrong[CONTEXT] += request->cuda_context != current || !request->context || block->context != request->context;
        wrong[ALIGNMENT] += request->alignment < 256 || block->alignment != request->alignment;
        wrong[SIZE] += !request->size || block->size != request->size;
        wrong[STREAM] += (request->kind == CUPLUG_ASYNC) != (request->stream != NULL) || block->stream != request->stream;
    }
    pthread_mutex_unlock(&lock);
    return block->pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult checker_backend_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    struct seen *seen;
    CUcontext current = NULL;

    pthread_mutex_lock(&lock);
    seen = slot(block->pointer);
    cuCtxGetCurrent(&current);
    frees++;
    if (!seen->pointer) {
        wrong[UNKNOWN]++;
    } else {
        wrong[TWICE] += !seen->live;
        wrong[SIZE] += block->size != seen->block.size;
        wrong[DEVICE] += block->device != seen->block.device;
        wrong[STREAM] += block->stream_id != seen->block.stream_id || (block->stream != seen->block.stream && block->stream);
        orphans += block->stream != seen->block.stream;
        wrong[ALIGNMENT] += block->alignment != seen->block.alignment;
        wrong[CONTEXT] +=
            block->context != seen->block.context || block->cuda_context != current || current != seen->block.cuda_context;
        wrong[COOKIE] += block->cookie != seen;
        wrong[KIND] += block->kind != seen->block.kind;
        wrong[STRUCTURE] += block->struct_size < sizeof *block || release->struct_size < sizeof *release || self != (void *)table;
        wrong[ORDER] += release->kind != CUPLUG_IDLE;
        seen->live = 0;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void *checker_alloc(size_t size, int device, CUstream stream) {
    CUdeviceptr pointer;

    pthread_mutex_lock(&lock);
    pointer = place(size, device);
    if (pointer) {
        *slot(pointer) = (struct seen){pointer, 1, {.pointer = pointer, .size = size, .device = device, .stream = stream}};
        allocations++;
        streams += stream != NULL;
    }
    pthread_mutex_unlock(&lock);
    return (void *)pointer;
}

void checker_free(void *pointer, size_t size, int device, CUstream stream) {
    struct seen *seen;

    pthread_mutex_lock(&lock);
    seen = slot((CUdeviceptr)pointer);
    frees++;
    if (!seen->pointer) {
        wrong[UNKNOWN]++;
    } else {
        wrong[TWICE] += !seen->live;
        wrong[SIZE] += size != seen->block.size;
        wrong[DEVICE] += device != seen->block.device;
        wrong[STREAM] += stream != seen->block.stream && stream;
        orphans += stream != seen->block.stream;
        seen->live = 0;
    }
    pthread_mutex_unlock(&lock);
}

static CUresult checker_open(const char *options, void **self) {
    (void)options;
    table = calloc(SLOTS, sizeof *table);
    *self = table;
    return table ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

__attribute__((destructor)) static void say(void) {
    const char *path = getenv("CHECKER_OUT");
    FILE *file = path && allocations ? fopen(path, "a") : NULL;

    if (!file)
        return;
    fprintf(file, "allocations %lu, in stream order %lu, their stream gone %lu, frees %lu", allocations, streams, orphans, frees);
    for (int i = 0; i < WRONG; i++)
        if (wrong[i])
            fprintf(file, ", wrong %s %lu", words[i], wrong[i]);
    fprintf(file, "\n");
    fclose(file);
}

#ifndef ABI
#define ABI CUPLUG_BACKEND_ABI
#endif
#ifndef TABLE
#define TABLE sizeof(struct cuplug_backend_ops)
#endif

static const struct cuplug_backend_ops checker = {
    .abi_version = ABI,
    .struct_size = TABLE,
    .name = "checker",
    .alloc = checker_backend_alloc,
    .free = checker_backend_free,
    .open = checker_open,
};

const struct cuplug_backend_ops *cuplug_backend_open(uint32_t abi_version) {
    (void)abi_version;
    return &checker;
}
