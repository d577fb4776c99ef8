/*
 * ipc.h: what the importing side of CUDA IPC has open (ipc.c).
 */
#ifndef CUPLUG_IPC_H
#define CUPLUG_IPC_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cuplug_context;

/* Lies the address in memory of another process's that was opened here by a handle of ours? Then *base is what the program was given, and *size (bytes) how
 * much there is from there on, the block's own size or more. */
bool cuplug_ipc_find(CUdeviceptr address, CUdeviceptr *base, size_t *size);

/* The context is gone, and what was opened in it. */
void cuplug_ipc_context_lost(const struct cuplug_context *context);

#endif
