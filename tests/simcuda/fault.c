/*
 * fault.c — simcuda_fault: what a kernel that touches a wild address does to its context, at a test's request.
 * Programs find it with dlsym in libcuda.so.1; the real driver has no such thing.
 */
#include "sim.h"

CUresult simcuda_fault(CUcontext handle);

CUresult simcuda_fault(CUcontext handle) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    return sim_unlock_return(r);
}
