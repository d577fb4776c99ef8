/*
 * array.c — CUDA arrays: they take device memory and hold nothing.
 */
#include "sim.h"

#include <stdlib.h>

#define MOST_WIDTH ((size_t)131072)

struct array {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct sim_alloc *alloc;
    struct array *next;
};
static struct array *arrays;

static size_t element(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

CUresult sim_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    if (!out || !desc || desc->Width == 0 || desc->Width > MOST_WIDTH ||
        (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS)
        r = sim_capture_guard(ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    size_t height = desc->Height ? desc->Height : 1, depth = desc->Depth ? desc->Depth : 1, size;
    if (__builtin_mul_overflow(desc->Width * height, depth * desc->NumChannels * element(desc->Format), &size))
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_alloc *alloc = sim_pages_take(&sim.device[ctx->device], ctx, size, 0);
    if (!alloc)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    alloc->kind = SIM_VMM;
    alloc->freeing = true; /* no address of the program's */
    struct array *array = calloc(1, sizeof(*array));
    *array = (struct array){*desc, alloc, arrays};
    arrays = array;
    *out = (CUarray)array;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc) {
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = desc->Width, .Height = desc->Height, .Format = desc->Format, .NumChannels = desc->NumChannels};
    return sim_cuArray3DCreate_v2(out, &d);
}

CUresult sim_cuArrayDestroy(CUarray handle) {
    sim_lock();
    struct array **link = &arrays;
    while (*link && (CUarray)*link != handle)
        link = &(*link)->next;
    struct array *array = *link;
    if (!array)
        return sim_unlock_return(CUDA_ERROR_INVALID_HANDLE);
    *link = array->next;
    sim_pages_give(array->alloc);
    free(array);
    return sim_unlock_return(CUDA_SUCCESS);
}

/* All levels in one, as nobody looks into it: less than twice the first. */
CUresult sim_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels) {
    if (!out || !desc || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR all = *desc;
    if (levels > 1)
        all.Width *= 2;
    return sim_cuArray3DCreate_v2((CUarray *)out, &all);
}

CUresult sim_cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return sim_cuArrayDestroy((CUarray)array);
}
