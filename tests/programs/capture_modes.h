/*
 * The three modes that a stream can be captured in, by the names that the tests print.
 */
#ifndef CUPLUG_TEST_CAPTURE_MODES_H
#define CUPLUG_TEST_CAPTURE_MODES_H

#include <cuda_runtime_api.h>

static const struct {
    const char *name;
    enum cudaStreamCaptureMode mode;
} modes[] = {
    {"global", cudaStreamCaptureModeGlobal},
    {"thread-local", cudaStreamCaptureModeThreadLocal},
    {"relaxed", cudaStreamCaptureModeRelaxed},
};

#endif
