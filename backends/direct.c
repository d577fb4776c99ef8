/*
 * direct.c: the driver as it is. Owns nothing, locks nothing; the reference every other backend is compared with.
 */
#include "shim/real.h"

#include "registry.h"
#include "shim/stats.h"

static CUresult direct_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    CUresult result;

    (void)self;
    if (request->kind == CUPLUG_ASYNC)
        result = cuplug_driver_alloc_async(&block->pointer, request->size, request->stream);
    else
        result = cuplug_real.cuMemAlloc_v2(&block->pointer, request->size);
    if (result == CUDA_SUCCESS)
        CUPLUG_COUNT(CUPLUG_BACKEND_DIRECT, request->device, driver_allocs, 1);
    return result;
}

static CUresult direct_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    CUresult result;

    (void)self;
    if (release->kind == CUPLUG_ASYNC)
        result = cuplug_driver_free_async(block->pointer, release->stream);
    else
        result = cuplug_real.cuMemFree_v2(block->pointer);
    if (result == CUDA_SUCCESS)
        CUPLUG_COUNT(CUPLUG_BACKEND_DIRECT, block->device, driver_frees, 1);
    return result;
}

const struct cuplug_backend_ops cuplug_backend_direct = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof(struct cuplug_backend_ops),
    .name = "direct",
    .alloc = direct_alloc,
    .free = direct_free,
};
