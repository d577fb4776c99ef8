/*
 * graph.h — graphs, their nodes, executable graphs and captures: what capture.c, graph.c, nodes.c and launch.c share.
 *
 * Graph memory: a node's block belongs to its graphs (alloc->graphs counts them) from the moment the node is made; it is
 * live between an executed allocation and the free. All locked.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim.h"

struct sim_node {
    struct sim_graph *graph;
    struct sim_work work;
    struct sim_node **deps;
    size_t ndeps;
    size_t index; /* in its graph: always larger than its dependencies' in an executable graph */
    bool mark;
};

struct sim_graph {
    struct sim_node **node;
    size_t nodes, room;
    bool hidden; /* being captured, a child's copy or an executable one: no handle of the program's */
    struct sim_graph *next;
    /* executable graphs only */
    bool exec;
    unsigned long long flags;
    struct sim_graph *source; /* made from this one; NULL once that is gone */
    struct sim_op *last;
};

struct sim_capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    unsigned long long thread;
    struct sim_stream *origin;
    struct sim_ctx *ctx;
    struct sim_graph *graph;
    bool borrowed; /* cuStreamBeginCaptureToGraph: the graph is the program's */
    bool invalid;
    struct sim_capture *next;
};

struct sim_graph *sim_graph_new(void);
bool sim_graph_has_memory(const struct sim_graph *graph); /* then it is neither cloned, nor a child, nor instantiated twice */
bool sim_graph_instantiated(const struct sim_graph *graph);
void sim_graph_free(struct sim_graph *graph);
struct sim_graph *sim_graph_check(CUgraph handle);
struct sim_graph *sim_exec_check(CUgraphExec handle);
struct sim_node *sim_node_check(CUgraphNode handle);
struct sim_node *sim_graph_add(struct sim_graph *graph, const struct sim_work *work, struct sim_node *const *deps, size_t ndeps);
struct sim_graph *sim_graph_copy(const struct sim_graph *graph); /* same nodes in the same order */
void sim_node_depend(struct sim_node *node, struct sim_node *earlier);
CUgraphNodeType sim_node_type(const struct sim_node *node);
void sim_graphs_end_device(int device);

bool sim_work_from_copy3d(struct sim_work *work, const CUDA_MEMCPY3D *copy); /* copy.c */

struct sim_alloc *sim_graph_memory_new(int device, size_t size);
void sim_graph_memory_ref(const struct sim_work *work);
void sim_graph_memory_unref(const struct sim_work *work, struct sim_op *last);

#endif
