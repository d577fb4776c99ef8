/*
 * ipc.h: what the importing side of CUDA IPC has open (ipc.c).
 */
#ifndef CUPLUG_IPC_H
#define CUPLUG_IPC_H

struct cuplug_context;

/* The context is gone, and what was opened in it. */
void cuplug_ipc_context_lost(const struct cuplug_context *context);

#endif
