/*
 * quiet_shim.h: the parts of the shim in which nothing happens, for tests that link a few files of it: no capture, no exit, contexts that can be made
 * current and meet no lasting errors, statistics that nobody reads. To be included once, by the test's one source.
 */
#ifndef CUPLUG_QUIET_SHIM_H
#define CUPLUG_QUIET_SHIM_H

#include "shim/capture.h"
#include "shim/context.h"
#include "shim/thread.h"

__thread struct cuplug_thread cuplug_self; /* no thread has a default stream of its own */

bool cuplug_gate_enter(void) {
    return true;
}
void cuplug_gate_leave(void) {}
CUstreamCaptureMode cuplug_capture_relax(void) {
    return CU_STREAM_CAPTURE_MODE_GLOBAL;
}
void cuplug_capture_restore(CUstreamCaptureMode mode) {
    (void)mode;
}
bool cuplug_context_push(const struct cuplug_context *context) {
    return context != NULL;
}
void cuplug_context_pop(void) {}
CUresult cuplug_context_check(void) {
    return CUDA_SUCCESS;
}
CUresult cuplug_context_answered(struct cuplug_context *context, CUresult result) {
    (void)context;
    return result;
}
bool cuplug_exiting(void) {
    return false;
}
void cuplug_stats_count(int backend, int device, enum cuplug_counter counter, int64_t by) {
    (void)backend, (void)device, (void)counter, (void)by;
}

#endif
