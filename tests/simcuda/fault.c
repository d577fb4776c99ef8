/*
 * fault.c — what goes wrong at a test's request while the program runs, and what the driver has given out.
 * Programs find these with dlsym in libcuda.so.1; the real driver has no such things.
 */
#include "entry.h"

/* A kernel that touches a wild address, or another error that a context keeps to its end. */
CUresult simcuda_fault(CUcontext handle);
CUresult simcuda_fault_with(CUcontext handle, CUresult error);
/* The same, but as on the device no call says it before one comes upon it: a free, a query, a wait. May be called by a host function. */
CUresult simcuda_fault_unseen(CUcontext handle, CUresult error);

/* As SIMCUDA_FAIL, counted from now on; NULL: nothing fails any more. */
void simcuda_fail(const char *items);

/* The name of export number 0, 1, … (NULL past the last), and how often it was called. */
const char *simcuda_calls(int number, unsigned long *calls);

/* Bytes of the device that are given out, whole pages; managed memory is counted to device 0. */
size_t simcuda_used(int device);

CUresult simcuda_fault_with(CUcontext handle, CUresult error) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        ctx->sticky = error;
    return sim_unlock_return(r);
}

CUresult simcuda_fault_unseen(CUcontext handle, CUresult error) {
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_ctx_resolve(handle, &ctx);
    if (r == CUDA_SUCCESS)
        ctx->unseen = error;
    return sim_unlock_return(r);
}

CUresult simcuda_fault(CUcontext handle) {
    return simcuda_fault_with(handle, CUDA_ERROR_ILLEGAL_ADDRESS);
}

void simcuda_fail(const char *items) {
    sim_knobs_fail(items);
}

const char *simcuda_calls(int number, unsigned long *calls) {
    if (number < 0 || number >= SIM_ROWS)
        return NULL;
    *calls = sim_knobs_calls((enum sim_row)number);
    return sim_symbols[number].export;
}

size_t simcuda_used(int device) {
    sim_lock();
    size_t bytes = sim.device[device].used_pages * SIM_PAGE + (device == 0 ? sim_ranges_managed() : 0);
    sim_unlock();
    return bytes;
}
