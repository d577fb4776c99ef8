/*
 * vmm.h: segments of physical memory (cuMemCreate) mapped one behind the other into a large range of addresses, so that they are one to whoever cuts
 * them up, and can be given back or moved by themselves. The functions are those of struct cuplug_policy (cache.h), for the cache of `policy`.
 */
#ifndef CUPLUG_VMM_H
#define CUPLUG_VMM_H

#include "cache.h"

/* From the context's own idle memory as far as possible, which moves to the end of the range; the rest is new. Where the device cannot do it: cuMemAlloc,
 * after one line. */
CUresult cuplug_vmm_segment(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size, CUdeviceptr *base);
/* Does not wait: no work may touch it any more. */
CUresult cuplug_vmm_release(struct cuplug_context *context, CUdeviceptr base, size_t size);
size_t cuplug_vmm_whole(struct cuplug_context *context, CUdeviceptr address, size_t size, size_t most, CUdeviceptr *base);
void cuplug_vmm_lost(struct cuplug_context *context);

/* Another device has access to the context's memory. */
void cuplug_vmm_reached(struct cuplug_context *context, CUdevice by);

#endif
