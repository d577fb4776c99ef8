/*
 * stream.c — streams, events, host functions and captures: thin, their handles are the driver's.
 */
#include "rt.h"

cudaError_t rt_cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    RT_BOUND(cuStreamCreateWithPriority, stream, flags, priority);
}

cudaError_t rt_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return rt_cudaStreamCreateWithPriority(stream, flags, 0);
}

RT_HIDDEN cudaError_t rt_cudaStreamCreate(cudaStream_t *stream);
cudaError_t rt_cudaStreamCreate(cudaStream_t *stream) {
    return rt_cudaStreamCreateWithPriority(stream, 0, 0);
}
cudaError_t rt_cudaStreamDestroy(cudaStream_t stream) {
    RT_BOUND(cuStreamDestroy, stream);
}
cudaError_t rt_cudaStreamSynchronize(cudaStream_t stream) {
    RT_BOUND(cuStreamSynchronize, stream);
}
cudaError_t rt_cudaStreamQuery(cudaStream_t stream) {
    RT_BOUND(cuStreamQuery, stream);
}

cudaError_t rt_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    RT_BOUND(cuStreamWaitEvent, stream, event, flags);
}

cudaError_t rt_cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    RT_BOUND(cuStreamGetFlags, stream, flags);
}
cudaError_t rt_cudaStreamGetPriority(cudaStream_t stream, int *p) {
    RT_BOUND(cuStreamGetPriority, stream, p);
}
cudaError_t rt_cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    RT_BOUND(cuStreamGetId, stream, id);
}

cudaError_t rt_cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    RT_BOUND(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

cudaError_t rt_cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
                                             const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode) {
    RT_BOUND(cuStreamBeginCaptureToGraph, stream, graph, nodes, (const CUgraphEdgeData *)edges, count, (CUstreamCaptureMode)mode);
}

cudaError_t rt_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    RT_BOUND(cuStreamEndCapture, stream, graph);
}

cudaError_t rt_cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    RT_BOUND(cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status);
}

cudaError_t rt_cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    RT_BOUND(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}

cudaError_t rt_cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
    RT_BOUND(cuStreamAddCallback, stream, (CUstreamCallback)(void (*)(void))callback, data, flags);
}

cudaError_t rt_cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
    RT_BOUND(cuLaunchHostFunc, stream, fn, data);
}

cudaError_t rt_cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    RT_BOUND(cuEventCreate, event, flags);
}
RT_HIDDEN cudaError_t rt_cudaEventCreate(cudaEvent_t *event);
cudaError_t rt_cudaEventCreate(cudaEvent_t *event) {
    return rt_cudaEventCreateWithFlags(event, 0);
}
cudaError_t rt_cudaEventDestroy(cudaEvent_t event) {
    RT_BOUND(cuEventDestroy, event);
}
cudaError_t rt_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    RT_BOUND(cuEventRecord, event, stream);
}

cudaError_t rt_cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    RT_BOUND(cuEventRecordWithFlags, event, stream, flags);
}

cudaError_t rt_cudaEventQuery(cudaEvent_t event) {
    RT_BOUND(cuEventQuery, event);
}
cudaError_t rt_cudaEventSynchronize(cudaEvent_t event) {
    RT_BOUND(cuEventSynchronize, event);
}

cudaError_t rt_cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    RT_BOUND(cuEventElapsedTime, ms, start, end);
}
