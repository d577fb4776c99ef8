/*
 * capture.h: our records and waits stay out of stream captures.
 *
 * While any stream of the process captures, a context record or wait would fail and spoil the capture. A record or wait therefore passes a
 * gate: it announces itself, then looks whether anything captures. A capture's begin raises the count, then waits until nobody is inside.
 * This hand-shake and that of a context's end (context.h) are the places where somebody waits for a driver call of ours to return.
 */
#ifndef CUPLUG_CAPTURE_H
#define CUPLUG_CAPTURE_H

#include "real.h"

#include <stdbool.h>
#include <stdint.h>

struct cuplug_context;

/* False while anything captures. True: call cuplug_gate_leave() once the driver call is made. */
bool cuplug_gate_enter(void);
void cuplug_gate_leave(void);
/* Nobody enters any more, and whoever was inside has left; and the reverse. They count. */
void cuplug_gate_close(void);
void cuplug_gate_open(void);

/* Is any stream of the process capturing? */
bool cuplug_capturing(void);
/* Is this stream? One load while nothing captures. A stream that cannot be asked counts as capturing. */
bool cuplug_capturing_stream(CUstream stream);

/* After the driver's begin of a capture on `stream`, for which the gate was closed. It stays closed until the capture's end. */
void cuplug_capture_begun(CUstream stream, bool ok);
/* After the driver's end of a capture. */
void cuplug_capture_end(CUstream stream);
/* The newest capture there is. Asked before a stream or context is destroyed and named afterwards, as the handle may by then be
 * another's, which captures. */
uint64_t cuplug_capture_newest(void);
/* A stream is gone, or all of a context's, and with it the captures up to number `last`. */
void cuplug_capture_forget(CUstream stream, uint64_t last);
void cuplug_capture_forget_context(CUcontext context, uint64_t last);

/* Our queries and waits of events, and what creates them, are legal in every thread only in relaxed mode. */
CUstreamCaptureMode cuplug_capture_relax(void);
void cuplug_capture_restore(CUstreamCaptureMode mode);

/* In a forked child: locks are free, whoever held them. */
void cuplug_capture_after_fork(void);

#endif
