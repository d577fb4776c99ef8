/*
 * capture_test.c: the gate that keeps our records out of captures, with a driver that gives a destroyed handle to the next stream.
 * A user would lose: a capture, spoiled by a record that the gate let through.
 */
#include "shim/capture.h"

#include "unit.h"

bool cuplug_hooked = true;

static CUstream const stream = (CUstream)0x100;
static CUcontext const context = (CUcontext)0x200;

static CUresult get_context(CUstream of, CUcontext *there) {
    *there = of ? context : NULL;
    return CUDA_SUCCESS;
}

static CUresult not_capturing(CUstream of, CUstreamCaptureStatus *status) {
    (void)of;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

struct cuplug_real cuplug_real = {{{.cuStreamGetCtx = get_context, .cuStreamIsCapturing = not_capturing}}};

static void begin(void) {
    cuplug_gate_close();
    cuplug_capture_begun(stream, true);
}

static bool open(void) {
    bool entered = cuplug_gate_enter();

    if (entered)
        cuplug_gate_leave();
    return entered;
}

/* One thread destroys a stream, another is given its handle and captures before the first one is back from the driver. */
static void a_destroyed_stream_ends_no_capture_of_the_next(void) {
    uint64_t before = cuplug_capture_newest();

    begin();
    cuplug_capture_forget(stream, before);
    CHECK(!open());
    cuplug_capture_end(stream);
    CHECK(open());
}

static void a_lost_context_ends_no_capture_of_the_next(void) {
    uint64_t before = cuplug_capture_newest();

    begin();
    cuplug_capture_forget_context(context, before);
    CHECK(!open());
    cuplug_capture_end(stream);
    CHECK(open());
}

static void what_dies_takes_its_captures_along(void) {
    begin();
    cuplug_capture_forget(stream, cuplug_capture_newest());
    CHECK(open());
    begin();
    cuplug_capture_forget_context(context, cuplug_capture_newest());
    CHECK(open());
}

int main(void) {
    RUN(a_destroyed_stream_ends_no_capture_of_the_next);
    RUN(a_lost_context_ends_no_capture_of_the_next);
    RUN(what_dies_takes_its_captures_along);
    return 0;
}
