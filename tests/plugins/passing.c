/* passing.c: the smallest plugin with a table. It keeps nothing, and says what the driver says, of frees as well. */
#define CUPLUG_PLUGIN
#include <cuplug/backend.h>

static CUresult passing_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    (void)self;
    return cuMemAlloc(&block->pointer, request->size);
}

static CUresult passing_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    (void)self, (void)release;
    return cuMemFree(block->pointer);
}

/* It has nothing to forget; without this function cuplug would look for blocks of contexts that are gone in its answers. */
static void passing_context_lost(void *self, struct cuplug_context *context) {
    (void)self, (void)context;
}

static const struct cuplug_backend_ops passing = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof passing,
    .name = "passing",
    .alloc = passing_alloc,
    .free = passing_free,
    .context_lost = passing_context_lost,
};

const struct cuplug_backend_ops *cuplug_backend_open(uint32_t abi_version) {
    return abi_version == CUPLUG_BACKEND_ABI ? &passing : 0;
}
