/*
 * inside.c: a plugin that lets the program act while it is inside a call of it (tests/programs/plugin_moments.c). It notes what
 * is called before its open has returned; and it frees memory that the program hands it, as a library frees what its own worker
 * had.
 */
#define CUPLUG_PLUGIN
#include <cuplug/backend.h>

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

_Atomic int opening, open_may_return, early; /* early: calls before open has returned */
_Atomic int handed_over, in_free, free_may_go_on;
CUdeviceptr theirs[100];

static _Atomic int opened;

static CUresult inside_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    (void)self;
    return cuMemAlloc(&block->pointer, request->size);
}

static CUresult inside_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    (void)self, (void)release;
    if (handed_over) {
        in_free = 1;
        while (!free_may_go_on)
            usleep(1000);
        usleep(200000); /* the context's end is under way by now, most likely */
        while (handed_over)
            cuMemFree(theirs[--handed_over]);
    }
    return cuMemFree(block->pointer);
}

static CUresult inside_open(const char *options, void **self) {
    (void)self;
    opening = 1;
    while (strcmp(options, "wait") == 0 && !open_may_return)
        usleep(1000);
    opened = 1;
    return CUDA_SUCCESS;
}

static int inside_owns(void *self, CUdeviceptr pointer) {
    (void)self, (void)pointer;
    early += !opened;
    return 0;
}

static size_t inside_available(void *self, struct cuplug_context *context, size_t available) {
    (void)self, (void)context;
    early += !opened;
    return available;
}

static void inside_stream_destroyed(void *self, struct cuplug_context *context, CUstream stream, uint64_t stream_id) {
    (void)self, (void)context, (void)stream, (void)stream_id;
    early += !opened;
}

static const struct cuplug_backend_ops operations = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof operations,
    .name = "inside",
    .alloc = inside_alloc,
    .free = inside_free,
    .open = inside_open,
    .owns = inside_owns,
    .available = inside_available,
    .stream_destroyed = inside_stream_destroyed,
};

const struct cuplug_backend_ops *cuplug_backend_open(uint32_t version) {
    (void)version;
    return &operations;
}
