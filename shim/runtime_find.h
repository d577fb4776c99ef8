/*
 * runtime_find.h: which cudart a caller means. A process may hold several, some of them visible to one library only.
 */
#ifndef CUPLUG_RUNTIME_FIND_H
#define CUPLUG_RUNTIME_FIND_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct cuplug_runtime {
    cudaError_t (*cudaMalloc)(void **, size_t);
    cudaError_t (*cudaFree)(void *);
    cudaError_t (*cudaMallocAsync)(void **, size_t, cudaStream_t);
    cudaError_t (*cudaMallocAsync_ptsz)(void **, size_t, cudaStream_t);
    cudaError_t (*cudaFreeAsync)(void *, cudaStream_t);
    cudaError_t (*cudaFreeAsync_ptsz)(void *, cudaStream_t);
    int version; /* cudaRuntimeGetVersion: 12000 for 12.0 */
};

/* The cudart that code at `caller` (a return address) would have reached without us; NULL if no cudart is loaded. Remembered per call site; with
 * `call` (the functions are about to be called) checked to be still loaded. The result is never freed. */
const struct cuplug_runtime *cuplug_runtime_find(const void *caller, bool call);

/* Around what asks the loader. False: a fork is under way, do not. A fork waits until all have left. */
bool cuplug_runtime_loader_enter(void);
void cuplug_runtime_loader_leave(void);

/* In the process that forks, around the fork. */
void cuplug_runtime_before_fork(void);
void cuplug_runtime_forked(void);
/* In a forked child: locks are free, whoever held them. `refuses`: the driver will refuse every call. */
void cuplug_runtime_after_fork(bool refuses);

#endif
