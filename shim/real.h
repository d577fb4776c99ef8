/*
 * real.h: the real driver's entry points, found once, under the driver's own handle. A slot whose symbol the driver lacks holds a function
 * that returns CUDA_ERROR_NOT_INITIALIZED, so callers need no NULL checks; cuplug_real_has() tells the two apart.
 * Every other file of the shim includes CUDA's declarations through this header.
 */
#ifndef CUPLUG_REAL_H
#define CUPLUG_REAL_H

#ifndef __CUDA_API_VERSION_INTERNAL
#error "compile with -D__CUDA_API_VERSION_INTERNAL: cuda.h then declares every variant (v1, _v2, _ptsz) and renames none"
#endif
#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>

/* cuCtxGetId and the like are declared under their plain names; variants that cuda.h keeps for the driver's own build are declared here. */
struct cuplug_real {
    union {
        struct {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) __typeof__(&export) export;
#define NEED(export) __typeof__(&export) export;
#include "hooks.def"
#include "real.def"
#undef HOOK
#undef NEED
        };
        void *slot[1];
    };
};

enum cuplug_real_index {
#define HOOK(export, asked, version, stream, wrapper) CUPLUG_REAL_##export,
#define NEED(export) CUPLUG_REAL_##export,
#include "hooks.def"
#include "real.def"
#undef HOOK
#undef NEED
#undef RUNTIME_HOOK
    CUPLUG_REAL_COUNT
};

extern struct cuplug_real cuplug_real;

/* Finds libcuda.so.1 among the loaded objects and fills cuplug_real. Never loads the driver. True once it is filled; callable again. */
bool cuplug_real_load(void);

/* The driver's stream-ordered pair under a stream's explicit name, by the variant that has it: a driver need not have both. */
static inline CUresult cuplug_driver_alloc_async(CUdeviceptr *pointer, size_t size, CUstream stream) {
    return (stream == CU_STREAM_PER_THREAD ? cuplug_real.cuMemAllocAsync_ptsz : cuplug_real.cuMemAllocAsync)(pointer, size, stream);
}

static inline CUresult cuplug_driver_free_async(CUdeviceptr pointer, CUstream stream) {
    return (stream == CU_STREAM_PER_THREAD ? cuplug_real.cuMemFreeAsync_ptsz : cuplug_real.cuMemFreeAsync)(pointer, stream);
}

/* In a forked child: the lock is free, whoever held it. */
void cuplug_real_after_fork(void);

/* The address of the driver's export `index`, NULL where the driver has none (or is not loaded). */
void *cuplug_real_address(enum cuplug_real_index index);

#define cuplug_real_has(export) (cuplug_real_address(CUPLUG_REAL_##export) != NULL)

#endif
