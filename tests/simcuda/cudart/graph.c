/*
 * graph.c — graphs: the runtime's node parameters turned into the driver's.
 */
#include "rt.h"

#define PTR(p) ((CUdeviceptr)(uintptr_t)(p))

cudaError_t rt_cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    RT_BOUND(cuGraphCreate, graph, flags);
}
cudaError_t rt_cudaGraphDestroy(cudaGraph_t graph) {
    RT_BOUND(cuGraphDestroy, graph);
}
cudaError_t rt_cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph) {
    RT_BOUND(cuGraphClone, clone, graph);
}

cudaError_t rt_cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    RT_BOUND(cuGraphInstantiateWithFlags, exec, graph, flags);
}

RT_HIDDEN cudaError_t rt_cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t rt_cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return rt_cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t rt_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    RT_BOUND(cuGraphLaunch, exec, stream);
}
cudaError_t rt_cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    RT_BOUND(cuGraphUpload, exec, stream);
}
cudaError_t rt_cudaGraphExecDestroy(cudaGraphExec_t exec) {
    RT_BOUND(cuGraphExecDestroy, exec);
}

cudaError_t rt_cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    RT_BOUND(cuGraphGetNodes, graph, nodes, count);
}

cudaError_t rt_cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    RT_BOUND(cuGraphGetRootNodes, graph, nodes, count);
}

cudaError_t rt_cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    RT_BOUND(cuGraphNodeGetType, node, (CUgraphNodeType *)type);
}

cudaError_t rt_cudaGraphDestroyNode(cudaGraphNode_t node) {
    RT_BOUND(cuGraphDestroyNode, node);
}

cudaError_t rt_cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count) {
    RT_BOUND(cuGraphAddEmptyNode, node, graph, after, count);
}

cudaError_t rt_cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                    const struct cudaHostNodeParams *params) {
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_HOST_NODE_PARAMS p = {.fn = params->fn, .userData = params->userData};
    RT_BOUND(cuGraphAddHostNode, node, graph, after, count, &p);
}

/* Nodes that touch memory belong to a context: the current one. */
static cudaError_t current(CUcontext *ctx) {
    cudaError_t r = rt_bind();
    return r != cudaSuccess ? r : RT_CALL(cuCtxGetCurrent, ctx);
}

cudaError_t rt_cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                      const struct cudaMemsetParams *params) {
    CUcontext ctx;
    cudaError_t r = current(&ctx);
    if (r != cudaSuccess || !params)
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    CUDA_MEMSET_NODE_PARAMS p = {.dst = PTR(params->dst),
                                 .pitch = params->pitch,
                                 .value = params->value,
                                 .elementSize = params->elementSize,
                                 .width = params->width,
                                 .height = params->height};
    return RT_CALL(cuGraphAddMemsetNode, node, graph, after, count, &p, ctx);
}

cudaError_t rt_cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                        void *dst, const void *src, size_t n, enum cudaMemcpyKind kind) {
    (void)kind;
    CUcontext ctx;
    cudaError_t r = current(&ctx);
    if (r != cudaSuccess)
        return r;
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = PTR(src),
                       .srcPitch = n,
                       .srcHeight = 1,
                       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .dstDevice = PTR(dst),
                       .dstPitch = n,
                       .dstHeight = 1,
                       .WidthInBytes = n,
                       .Height = 1,
                       .Depth = 1};
    return RT_CALL(cuGraphAddMemcpyNode, node, graph, after, count, &c, ctx);
}

cudaError_t rt_cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                          cudaGraph_t child) {
    RT_BOUND(cuGraphAddChildGraphNode, node, graph, after, count, child);
}

cudaError_t rt_cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                           cudaEvent_t event) {
    RT_BOUND(cuGraphAddEventRecordNode, node, graph, after, count, event);
}

cudaError_t rt_cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                         cudaEvent_t event) {
    RT_BOUND(cuGraphAddEventWaitNode, node, graph, after, count, event);
}

cudaError_t rt_cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                        struct cudaMemAllocNodeParams *params) {
    cudaError_t r = rt_bind();
    if (r != cudaSuccess || !params)
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = (CUmemAllocationType)params->poolProps.allocType,
                                                  .location = {.type = (CUmemLocationType)params->poolProps.location.type,
                                                               .id = params->poolProps.location.id}},
                                    .bytesize = params->bytesize};
    r = RT_CALL(cuGraphAddMemAllocNode, node, graph, after, count, &p);
    params->dptr = (void *)(uintptr_t)p.dptr;
    return r;
}

cudaError_t rt_cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                       void *p) {
    RT_BOUND(cuGraphAddMemFreeNode, node, graph, after, count, PTR(p));
}

cudaError_t rt_cudaDeviceGraphMemTrim(int device) {
    RT_BOUND(cuDeviceGraphMemTrim, device);
}
