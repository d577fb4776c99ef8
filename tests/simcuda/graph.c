/*
 * graph.c — graphs as arrays of nodes, their memory, and the calls that make, ask about and end them.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct sim_graph *graphs;

struct sim_graph *sim_graph_new(void) {
    struct sim_graph *graph = calloc(1, sizeof(*graph));
    graph->next = graphs;
    graphs = graph;
    return graph;
}

struct sim_graph *sim_graph_check(CUgraph handle) {
    for (struct sim_graph *graph = graphs; graph; graph = graph->next)
        if ((CUgraph)graph == handle)
            return graph->exec ? NULL : graph;
    return NULL;
}

struct sim_graph *sim_exec_check(CUgraphExec handle) {
    for (struct sim_graph *graph = graphs; graph; graph = graph->next)
        if ((CUgraphExec)graph == handle)
            return graph->exec ? graph : NULL;
    return NULL;
}

struct sim_node *sim_node_check(CUgraphNode handle) {
    for (struct sim_graph *graph = graphs; graph; graph = graph->next)
        for (size_t i = 0; i < graph->nodes; i++)
            if ((CUgraphNode)graph->node[i] == handle)
                return graph->node[i];
    return NULL;
}

bool sim_graph_has_memory(const struct sim_graph *graph) {
    for (size_t i = 0; i < graph->nodes; i++) {
        const struct sim_work *work = &graph->node[i]->work;
        if (work->kind == SIM_NODE_ALLOC || work->kind == SIM_NODE_FREE ||
            (work->kind == SIM_NODE_CHILD && sim_graph_has_memory(work->child.graph)))
            return true;
    }
    return false;
}

bool sim_graph_instantiated(const struct sim_graph *graph) {
    const struct sim_graph *exec = graphs;
    while (exec && exec->source != graph)
        exec = exec->next;
    return exec != NULL;
}

static void free_node(struct sim_node *node, struct sim_op *last) {
    sim_graph_memory_unref(&node->work, last);
    if (node->work.kind == SIM_NODE_CHILD)
        sim_graph_free(node->work.child.graph);
    free(node->deps);
    free(node);
}

void sim_graph_free(struct sim_graph *graph) {
    struct sim_graph **link = &graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    for (struct sim_graph *exec = graphs; exec; exec = exec->next)
        if (exec->source == graph)
            exec->source = NULL;
    for (size_t i = 0; i < graph->nodes; i++)
        free_node(graph->node[i], graph->last);
    sim_op_replace(&graph->last, NULL);
    free(graph->node);
    free(graph);
}

struct sim_node *sim_graph_add(struct sim_graph *graph, const struct sim_work *work, struct sim_node *const *deps, size_t ndeps) {
    struct sim_node *node = calloc(1, sizeof(*node));
    node->graph = graph;
    node->work = *work;
    node->index = graph->nodes;
    node->ndeps = ndeps;
    if (ndeps) {
        node->deps = malloc(ndeps * sizeof(*node->deps));
        memcpy(node->deps, deps, ndeps * sizeof(*node->deps));
    }
    if (graph->nodes == graph->room) {
        graph->room = graph->room ? graph->room * 2 : 8;
        graph->node = realloc(graph->node, graph->room * sizeof(*graph->node));
    }
    graph->node[graph->nodes++] = node;
    sim_graph_memory_ref(work);
    return node;
}

struct sim_graph *sim_graph_copy(const struct sim_graph *graph) {
    struct sim_graph *copy = sim_graph_new();
    for (size_t i = 0; i < graph->nodes; i++) {
        const struct sim_node *from = graph->node[i];
        struct sim_work work = from->work;
        if (work.kind == SIM_NODE_CHILD) {
            work.child.graph = sim_graph_copy(work.child.graph);
            work.child.graph->hidden = true;
        }
        sim_graph_add(copy, &work, from->deps, from->ndeps);
    }
    for (size_t i = 0; i < copy->nodes; i++) /* only now: a dependency may have a higher index */
        for (size_t k = 0; k < copy->node[i]->ndeps; k++)
            copy->node[i]->deps[k] = copy->node[copy->node[i]->deps[k]->index];
    return copy;
}

/* --- memory nodes -------------------------------------------------------------------------------------------------------- */

struct sim_alloc *sim_graph_memory_new(int device, size_t size) {
    struct sim_op *none = NULL;
    struct sim_alloc *alloc = sim_pool_alloc(sim.device[device].graph_pool, size, NULL, &none);
    if (alloc) {
        alloc->kind = SIM_GRAPH;
        alloc->freeing = true;
        alloc->graphs = 0;
    }
    return alloc;
}

void sim_graph_memory_ref(const struct sim_work *work) {
    if (work->kind == SIM_NODE_ALLOC)
        work->memory.alloc->graphs++;
}

void sim_graph_memory_unref(const struct sim_work *work, struct sim_op *last) {
    if (work->kind != SIM_NODE_ALLOC)
        return;
    struct sim_alloc *alloc = work->memory.alloc;
    if (last)
        sim_op_replace(&alloc->idle, last);
    if (--alloc->graphs == 0 && alloc->freeing) {
        struct sim_op *op = alloc->idle ? sim_op_ref(alloc->idle) : NULL;
        sim_pool_free(alloc, NULL, op);
        sim_op_unref(op);
    }
}

static bool holds_memory_of(const struct sim_graph *graph, int device) {
    for (size_t i = 0; i < graph->nodes; i++)
        if (graph->node[i]->work.kind == SIM_NODE_ALLOC && graph->node[i]->work.memory.alloc->device == device)
            return true;
    return false;
}

void sim_graphs_end_device(int device) {
    for (struct sim_graph *graph = graphs; graph;) {
        bool end = holds_memory_of(graph, device) && !graph->hidden;
        struct sim_graph *next = graph->next;
        if (end) {
            sim_graph_free(graph);
            next = graphs; /* children went with it */
        }
        graph = next;
    }
}

/* --- entry points ----------------------------------------------------------------------------------------------------------- */

CUresult sim_cuGraphCreate(CUgraph *out, unsigned flags) {
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    *out = (CUgraph)sim_graph_new();
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphDestroy(CUgraph handle) {
    sim_lock();
    struct sim_graph *graph = sim_graph_check(handle);
    if (!graph || graph->hidden)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    sim_graph_free(graph);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphExecDestroy(CUgraphExec handle) {
    sim_lock();
    struct sim_graph *exec = sim_exec_check(handle);
    if (!exec)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    sim_graph_free(exec); /* what is running goes on: operations hold copies of their work */
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphClone(CUgraph *out, CUgraph handle) {
    sim_lock();
    struct sim_graph *graph = sim_graph_check(handle);
    if (!graph || !out)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    if (sim_graph_has_memory(graph))
        return sim_unlock_return(CUDA_ERROR_NOT_SUPPORTED);
    *out = (CUgraph)sim_graph_copy(graph);
    return sim_unlock_return(CUDA_SUCCESS);
}

static CUresult list(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots) {
    sim_lock();
    struct sim_graph *graph = sim_graph_check(handle);
    if (!graph || !count)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    size_t n = 0, room = *count;
    for (size_t i = 0; i < graph->nodes; i++) {
        if (roots && graph->node[i]->ndeps)
            continue;
        if (nodes && n < room)
            nodes[n] = (CUgraphNode)graph->node[i];
        n++;
    }
    for (size_t i = n; nodes && i < room; i++)
        nodes[i] = NULL;
    if (!nodes || n < room)
        *count = n;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    return list(handle, nodes, count, false);
}
CUresult sim_cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    return list(handle, nodes, count, true);
}

CUgraphNodeType sim_node_type(const struct sim_node *node) {
    switch (node->work.kind) {
    case SIM_HOSTFN:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_MEMSET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_WAIT_VALUE:
    case SIM_WRITE_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case SIM_NODE_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case SIM_NODE_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case SIM_NODE_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case SIM_NODE_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case SIM_NODE_CHILD:
        return CU_GRAPH_NODE_TYPE_GRAPH;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

CUresult sim_cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    sim_lock();
    struct sim_node *node = sim_node_check(handle);
    if (!node || !type)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    *type = sim_node_type(node);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphDestroyNode(CUgraphNode handle) {
    sim_lock();
    struct sim_node *node = sim_node_check(handle);
    if (!node || node->graph->exec)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    if (node->work.kind == SIM_NODE_ALLOC || node->work.kind == SIM_NODE_FREE)
        return sim_unlock_return(CUDA_ERROR_NOT_SUPPORTED);
    struct sim_graph *graph = node->graph;
    for (size_t i = 0; i < graph->nodes; i++) {
        struct sim_node *n = graph->node[i];
        size_t kept = 0;
        for (size_t k = 0; k < n->ndeps; k++)
            if (n->deps[k] != node)
                n->deps[kept++] = n->deps[k];
        n->ndeps = kept;
    }
    memmove(graph->node + node->index, graph->node + node->index + 1, (graph->nodes - node->index - 1) * sizeof(*graph->node));
    graph->nodes--;
    for (size_t i = node->index; i < graph->nodes; i++)
        graph->node[i]->index = i;
    free_node(node, NULL);
    return sim_unlock_return(CUDA_SUCCESS);
}

static struct sim_pool *graph_pool(CUdevice device) {
    return device >= 0 && device < sim.devices ? sim.device[device].graph_pool : NULL;
}

CUresult sim_cuDeviceGraphMemTrim(CUdevice device) {
    sim_lock();
    struct sim_pool *pool = graph_pool(device);
    if (pool)
        sim_pool_trim(pool, 0);
    return sim_unlock_return(pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    static const CUmemPool_attribute same[] = {
        [CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT] = CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
    };
    if ((unsigned)attribute >= sizeof(same) / sizeof(same[0]))
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph_pool(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_cuMemPoolGetAttribute((CUmemoryPool)graph_pool(device), same[attribute], value);
}
