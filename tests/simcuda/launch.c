/*
 * launch.c — instantiating and launching graphs: nodes become operations between two points of the launching stream.
 *
 * An executable graph has its child graphs flattened into it and its nodes sorted. Launches of one executable graph
 * follow each other; its memory nodes' blocks are live from a launch that allocates them to whatever frees them.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

void sim_node_depend(struct sim_node *node, struct sim_node *earlier) {
    node->deps = realloc(node->deps, (node->ndeps + 1) * sizeof(*node->deps));
    node->deps[node->ndeps++] = earlier;
}

static struct sim_node *flatten(struct sim_graph *into, struct sim_graph *graph, struct sim_node *entry);

/* Copies one node; what it depends on has been copied. copies: by index in the source graph. */
static struct sim_node *copy_node(struct sim_graph *into, struct sim_node *node, struct sim_node **copies,
                                  struct sim_node *entry) {
    static const struct sim_work nothing = {.kind = SIM_EMPTY};
    bool child = node->work.kind == SIM_NODE_CHILD;
    struct sim_node *copy = sim_graph_add(into, child ? &nothing : &node->work, NULL, 0);
    for (size_t i = 0; i < node->ndeps; i++)
        sim_node_depend(copy, copies[node->deps[i]->index]);
    if (node->ndeps == 0 && entry)
        sim_node_depend(copy, entry);
    return child ? flatten(into, node->work.child.graph, copy) : copy;
}

/* Appends graph to into, after entry. Returns a node that comes after all of it; NULL: the graph has a cycle. */
static struct sim_node *flatten(struct sim_graph *into, struct sim_graph *graph, struct sim_node *entry) {
    static const struct sim_work nothing = {.kind = SIM_EMPTY};
    struct sim_node **copies = calloc(graph->nodes + 1, sizeof(*copies)), *exit = NULL;
    size_t done = 0;
    for (bool progress = true; progress && done < graph->nodes;) {
        progress = false;
        for (size_t i = 0; i < graph->nodes; i++) {
            struct sim_node *node = graph->node[i];
            bool ready = !copies[i];
            for (size_t k = 0; ready && k < node->ndeps; k++)
                ready = copies[node->deps[k]->index] != NULL;
            if (!ready)
                continue;
            copies[i] = copy_node(into, node, copies, entry);
            if (!copies[i])
                goto out;
            progress = true;
            done++;
        }
    }
    if (done == graph->nodes) {
        exit = sim_graph_add(into, &nothing, copies, done);
        if (entry)
            sim_node_depend(exit, entry);
    }
out:
    free(copies);
    return exit;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_graph *graph = sim_graph_check(handle);
    if (!graph)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    if (sim_graph_has_memory(graph) && sim_graph_instantiated(graph))
        return sim_unlock_return(CUDA_ERROR_NOT_SUPPORTED);
    struct sim_graph *exec = sim_graph_new();
    exec->exec = true;
    exec->source = graph;
    exec->flags = flags;
    if (!flatten(exec, graph, NULL)) {
        sim_graph_free(exec);
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    }
    *out = (CUgraphExec)exec;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    if (error)
        *error = NULL;
    if (log && size)
        *log = '\0';
    return sim_cuGraphInstantiateWithFlags(out, graph, 0);
}

CUresult sim_cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    return sim_cuGraphInstantiate_v2(out, graph, error, log, size);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return params ? sim_cuGraphInstantiateWithFlags(out, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;
}

static bool freed_inside(const struct sim_graph *exec, const struct sim_alloc *alloc) {
    for (size_t i = 0; i < exec->nodes; i++)
        if (exec->node[i]->work.kind == SIM_NODE_FREE && exec->node[i]->work.memory.alloc == alloc)
            return true;
    return false;
}

/* Memory that an earlier launch left behind must have been freed, or be freed by the launch itself if so instantiated. */
static CUresult claim_memory(struct sim_graph *exec) {
    for (size_t i = 0; i < exec->nodes; i++) {
        const struct sim_work *work = &exec->node[i]->work;
        if (work->kind == SIM_NODE_ALLOC && !work->memory.alloc->freeing &&
            !(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < exec->nodes; i++) {
        const struct sim_work *work = &exec->node[i]->work;
        if (work->kind == SIM_NODE_ALLOC) {
            work->memory.alloc->freeing = freed_inside(exec, work->memory.alloc);
            work->memory.alloc->id = ++sim.next_id;
        } else if (work->kind == SIM_NODE_FREE) {
            work->memory.alloc->freeing = true;
        }
    }
    return CUDA_SUCCESS;
}

static void launch(struct sim_graph *exec, struct sim_stream *stream) {
    struct sim_ctx *ctx = sim_ctx_root(stream->ctx);
    struct sim_op *first = sim_stream_begin(stream, NULL), *last = sim_op_new(ctx, NULL);
    struct sim_op **ops = malloc((exec->nodes + 1) * sizeof(*ops));
    size_t count = exec->nodes;
    sim_op_after(first, exec->last);
    for (size_t i = 0; i < count; i++) {
        struct sim_node *node = exec->node[i];
        ops[i] = sim_op_new(ctx, &node->work);
        if (node->work.kind == SIM_NODE_WAIT || node->work.kind == SIM_NODE_RECORD || node->work.kind == SIM_NODE_ALLOC)
            ops[i]->work.kind = SIM_EMPTY;
        sim_op_after(ops[i], first);
        for (size_t k = 0; k < node->ndeps; k++)
            sim_op_after(ops[i], ops[node->deps[k]->index]);
        if (node->work.kind == SIM_NODE_WAIT && node->work.event.event->live)
            sim_op_after(ops[i], node->work.event.event->op);
        if (node->work.kind == SIM_NODE_RECORD && node->work.event.event->live)
            sim_event_record_op(node->work.event.event, ops[i]);
        sim_op_after(last, ops[i]);
    }
    sim_op_after(last, first);
    sim_op_replace(&exec->last, last);
    sim_op_replace(&stream->tail, last); /* before anything starts: starting may let go of the lock */
    sim_op_start(first);
    for (size_t i = 0; i < count; i++) {
        sim_op_start(ops[i]);
        sim_op_unref(ops[i]);
    }
    sim_stream_end(stream, last);
    sim_op_unref(first);
    sim_op_unref(last);
    free(ops);
}

CUresult sim_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    sim_lock();
    struct sim_stream *stream;
    struct sim_graph *exec = sim_exec_check(handle);
    CUresult r = exec ? sim_stream_resolve(stream_handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    if (stream->capture) { /* measured: a graph gets into another as a child node only */
        stream->capture->invalid = true;
        return sim_unlock_return(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    sim_stream_gate(sim_ctx_root(stream->ctx));
    r = sim_capture_implicit(stream);
    if (r == CUDA_SUCCESS)
        r = claim_memory(exec);
    if (r == CUDA_SUCCESS)
        launch(exec, stream);
    return sim_unlock_return(r);
}

CUresult sim_cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_exec_check(handle) ? sim_stream_resolve(stream_handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    return sim_unlock_return(r);
}
