/*
 * nodes.c — adding nodes to a graph by hand.
 */
#include "graph.h"

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t count, const struct sim_work *work) {
    sim_lock();
    struct sim_graph *graph = sim_graph_check(handle);
    bool ok = graph && out && (count == 0 || deps);
    for (size_t i = 0; ok && i < count; i++) {
        struct sim_node *dep = sim_node_check(deps[i]);
        ok = dep && dep->graph == graph;
    }
    if (ok)
        *out = (CUgraphNode)sim_graph_add(graph, work, (struct sim_node *const *)deps, count);
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count) {
    struct sim_work work = {.kind = SIM_EMPTY};
    return add(out, graph, deps, count, &work);
}

CUresult sim_cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                const CUDA_HOST_NODE_PARAMS *params) {
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_HOSTFN, .host = {.fn = params->fn, .data = params->userData}};
    return add(out, graph, deps, count, &work);
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                  const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx) {
    (void)ctx;
    if (!params || (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {
        .kind = SIM_MEMSET,
        .set = {params->dst, params->pitch, params->width, params->height, params->value, params->elementSize}};
    return add(out, graph, deps, count, &work);
}

CUresult sim_cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                  const CUDA_MEMCPY3D *params, CUcontext ctx) {
    (void)ctx;
    struct sim_work work;
    if (!params || !sim_work_from_copy3d(&work, params))
        return CUDA_ERROR_INVALID_VALUE;
    return add(out, graph, deps, count, &work);
}

CUresult sim_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph child) {
    sim_lock();
    struct sim_graph *from = sim_graph_check(child), *copy = NULL;
    if (from && sim_graph_has_memory(from))
        return sim_unlock_return(CUDA_ERROR_NOT_SUPPORTED);
    if (from) {
        copy = sim_graph_copy(from);
        copy->hidden = true;
    }
    sim_unlock();
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_NODE_CHILD, .child = {copy}};
    CUresult r = add(out, graph, deps, count, &work);
    if (r != CUDA_SUCCESS) {
        sim_lock();
        sim_graph_free(copy);
        sim_unlock();
    }
    return r;
}

static CUresult add_event(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent handle,
                          enum sim_work_kind kind) {
    sim_lock();
    struct sim_event *event = sim_event_check(handle);
    sim_unlock();
    struct sim_work work = {.kind = kind, .event = {event}};
    return event ? add(out, graph, deps, count, &work) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent event) {
    return add_event(out, graph, deps, count, event, SIM_NODE_RECORD);
}

CUresult sim_cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent event) {
    return add_event(out, graph, deps, count, event, SIM_NODE_WAIT);
}

CUresult sim_cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                    CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    if (!params || params->bytesize == 0 || params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int device = params->poolProps.location.id;
    if (device < 0 || device >= sim.devices)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_work work = {.kind = SIM_NODE_ALLOC, .memory = {sim_graph_memory_new(device, params->bytesize)}};
    sim_unlock();
    if (!work.memory.alloc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = add(out, graph, deps, count, &work);
    if (r == CUDA_SUCCESS) {
        params->dptr = work.memory.alloc->base;
    } else {
        sim_lock();
        sim_pool_free(work.memory.alloc, NULL, NULL);
        sim_unlock();
    }
    return r;
}

CUresult sim_cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, CUdeviceptr dptr) {
    sim_lock();
    struct sim_alloc *alloc = sim_pages_find(dptr);
    bool ok = alloc && alloc->base == dptr && alloc->kind == SIM_GRAPH;
    sim_unlock();
    struct sim_work work = {.kind = SIM_NODE_FREE, .memory = {alloc}};
    return ok ? add(out, graph, deps, count, &work) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    sim_lock();
    struct sim_node *node = sim_node_check(handle);
    if (!node || !params || node->work.kind != SIM_NODE_ALLOC)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = node->work.memory.alloc->device}},
        .bytesize = node->work.memory.alloc->size,
        .dptr = node->work.memory.alloc->base};
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *dptr) {
    sim_lock();
    struct sim_node *node = sim_node_check(handle);
    if (!node || !dptr || node->work.kind != SIM_NODE_FREE)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    *dptr = node->work.memory.alloc->base;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    sim_lock();
    bool ok = sim_graph_check(handle) && (count == 0 || (from && to));
    for (size_t i = 0; ok && i < count; i++) {
        struct sim_node *a = sim_node_check(from[i]), *b = sim_node_check(to[i]);
        ok = a && b && a != b && (CUgraph)a->graph == handle && (CUgraph)b->graph == handle;
        if (ok)
            sim_node_depend(b, a);
    }
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                       const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return sim_cuGraphAddDependencies(handle, from, to, count);
}
