/*
 * capture.c — stream capture: which stream records into which graph, and what must not be called meanwhile.
 *
 * An unsafe call (allocation, free, event query …) of a thread is refused, and spoils the captures it conflicts with,
 * unless the thread is in relaxed mode; context fences spoil the captures of their context in every mode.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct sim_capture *captures;

static struct sim_capture *find(unsigned long long id) {
    struct sim_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

CUresult sim_capture_guard(struct sim_ctx *ctx) {
    (void)ctx; /* a global capture concerns the whole process */
    if (!captures)
        return CUDA_SUCCESS;
    struct sim_thread *self = sim_self();
    if (self->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult r = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next) {
        bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && self->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        bool own = c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread == self->id;
        if (global || own) {
            c->invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return r;
}

CUresult sim_capture_fence(struct sim_ctx *ctx) {
    CUresult r = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next)
        if (sim_ctx_root(c->ctx) == sim_ctx_root(ctx)) {
            c->invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return r;
}

struct implicit {
    struct sim_ctx *ctx;
    bool spoil, found;
};

static void blocking_capture(struct sim_stream *stream, void *arg) {
    struct implicit *query = arg;
    if (!stream->capture || (stream->flags & CU_STREAM_NON_BLOCKING) || sim_ctx_root(stream->ctx) != query->ctx)
        return;
    query->found = true;
    if (query->spoil)
        stream->capture->invalid = true;
}

static CUresult implicit(struct sim_stream *stream, bool spoil) {
    if (!captures || stream->type != SIM_LEGACY)
        return CUDA_SUCCESS;
    struct implicit query = {.ctx = sim_ctx_root(stream->ctx), .spoil = spoil};
    sim_stream_each(blocking_capture, &query);
    return query.found ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult sim_capture_implicit(struct sim_stream *stream) {
    return implicit(stream, true);
}

CUresult sim_capture_beside(struct sim_stream *stream) {
    CUresult r = implicit(stream, true);
    return r != CUDA_SUCCESS ? r : sim_capture_guard(stream->ctx);
}

CUresult sim_capture_identity(struct sim_stream *stream) {
    if (!stream->capture)
        return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_sync(struct sim_stream *stream) {
    CUresult r = sim_capture_identity(stream);
    if (r == CUDA_SUCCESS)
        r = implicit(stream, true);
    return r != CUDA_SUCCESS ? r : sim_capture_guard(stream->ctx);
}

/* --- recording -------------------------------------------------------------------------------------------------------- */

static void set_deps(struct sim_stream *stream, struct sim_node *const *deps, size_t count) {
    if (count > stream->cap_room) {
        stream->cap_room = count;
        stream->cap_deps = realloc(stream->cap_deps, count * sizeof(*stream->cap_deps));
    }
    if (count)
        memmove(stream->cap_deps, deps, count * sizeof(*deps));
    stream->cap_ndeps = count;
}

static void add_deps(struct sim_stream *stream, struct sim_node *const *deps, size_t count) {
    size_t n = stream->cap_ndeps;
    struct sim_node **all = malloc((n + count + 1) * sizeof(*all));
    if (n)
        memcpy(all, stream->cap_deps, n * sizeof(*all));
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < n; k++)
            known |= all[k] == deps[i];
        if (!known)
            all[n++] = deps[i];
    }
    set_deps(stream, all, n);
    free(all);
}

CUresult sim_capture_add(struct sim_stream *stream, const struct sim_work *work, struct sim_node **out) {
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sim_node *node = sim_graph_add(stream->capture->graph, work, stream->cap_deps, stream->cap_ndeps);
    set_deps(stream, &node, 1);
    if (out)
        *out = node;
    return CUDA_SUCCESS;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event, bool external) {
    if (external) {
        struct sim_work work = {.kind = SIM_NODE_RECORD, .event = {event}};
        return sim_capture_add(stream, &work, NULL);
    }
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture->id;
    free(event->cap_deps);
    event->cap_deps = malloc((stream->cap_ndeps + 1) * sizeof(*event->cap_deps));
    if (stream->cap_ndeps)
        memcpy(event->cap_deps, stream->cap_deps, stream->cap_ndeps * sizeof(*event->cap_deps));
    event->cap_ndeps = stream->cap_ndeps;
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event, bool external, bool *handled) {
    struct sim_capture *own = stream->capture, *other = event->capture ? find(event->capture) : NULL;
    *handled = own || event->capture;
    if (own && own->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (own && external) {
        struct sim_work work = {.kind = SIM_NODE_WAIT, .event = {event}};
        return sim_capture_add(stream, &work, NULL);
    }
    if (!event->capture) {
        if (!own || !event->op)
            return CUDA_SUCCESS;
        own->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!other)
        return CUDA_ERROR_INVALID_VALUE; /* its capture has ended */
    if (other->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (own && own != other) {
        own->invalid = other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!own && stream->type == SIM_LEGACY) {
        other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!own) { /* the stream joins */
        stream->capture = other;
        stream->cap_ndeps = 0;
    }
    add_deps(stream, event->cap_deps, event->cap_ndeps);
    return CUDA_SUCCESS;
}

/* --- beginning and ending ------------------------------------------------------------------------------------------------ */

static void leave(struct sim_stream *stream, void *arg) {
    if (stream->capture == arg) {
        stream->capture = NULL;
        stream->cap_ndeps = 0;
    }
}

static void finish(struct sim_capture *capture, bool keep_graph) {
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    sim_stream_each(leave, capture);
    if (!keep_graph && !capture->borrowed)
        sim_graph_free(capture->graph);
    free(capture);
}

void sim_capture_forget_stream(struct sim_stream *stream) {
    struct sim_capture *capture = stream->capture;
    stream->capture = NULL;
    if (capture->origin == stream) /* any other may go; what it did is the graph's, if it was joined */
        finish(capture, false);
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, struct sim_graph *graph, struct sim_node *const *deps,
                      size_t count) {
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (stream->type == SIM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = calloc(1, sizeof(*capture));
    capture->id = ++sim.next_id;
    capture->mode = mode;
    capture->thread = sim_self()->id;
    capture->origin = stream;
    capture->ctx = stream->ctx;
    capture->borrowed = graph != NULL;
    capture->graph = graph ? graph : sim_graph_new();
    capture->graph->hidden |= !graph;
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    set_deps(stream, deps, count);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    sim_lock();
    return sim_unlock_return(begin(handle, mode, NULL, NULL, 0));
}

CUresult sim_cuStreamBeginCapture(CUstream handle) {
    return sim_cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode *deps,
                                         const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
    (void)edges;
    sim_lock();
    struct sim_graph *graph = sim_graph_check(graph_handle);
    if (!graph || (count && !deps))
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    return sim_unlock_return(begin(handle, mode, graph, (struct sim_node *const *)deps, count));
}

static void mark_ancestors(struct sim_node *node) {
    if (node->mark)
        return;
    node->mark = true;
    for (size_t i = 0; i < node->ndeps; i++)
        mark_ancestors(node->deps[i]);
}

/* Everything that was captured must lead to what the origin stream last saw. */
static bool joined(struct sim_capture *capture) {
    struct sim_graph *graph = capture->graph;
    for (size_t i = 0; i < graph->nodes; i++)
        graph->node[i]->mark = false;
    for (size_t i = 0; i < capture->origin->cap_ndeps; i++)
        mark_ancestors(capture->origin->cap_deps[i]);
    bool all = true;
    for (size_t i = 0; i < graph->nodes; i++)
        all &= graph->node[i]->mark;
    return all || capture->borrowed;
}

CUresult sim_cuStreamEndCapture(CUstream handle, CUgraph *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return sim_unlock_return(CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream)
        return sim_unlock_return(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_self()->id)
        return sim_unlock_return(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    *out = NULL;
    if (capture->invalid)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (r == CUDA_SUCCESS) {
        capture->graph->hidden = false;
        *out = (CUgraph)capture->graph;
    }
    finish(capture, r == CUDA_SUCCESS);
    return sim_unlock_return(r);
}

static CUstreamCaptureStatus status_of(const struct sim_stream *stream) {
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                       const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *count) {
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_stream *stream;
    CUresult r = sim_stream_resolve(handle, &stream);
    if (r == CUDA_SUCCESS)
        r = implicit(stream, false);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    *status = status_of(stream);
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id)
            *id = stream->capture->id;
        if (graph)
            *graph = (CUgraph)stream->capture->graph;
        if (deps)
            *deps = (const CUgraphNode *)stream->cap_deps;
        if (edges)
            *edges = NULL;
        if (count)
            *count = stream->cap_ndeps;
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                       const CUgraphNode **deps, size_t *count) {
    return sim_cuStreamGetCaptureInfo_v3(handle, status, id, graph, deps, NULL, count);
}

CUresult sim_cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id) {
    return sim_cuStreamGetCaptureInfo_v3(handle, status, id, NULL, NULL, NULL, NULL);
}

CUresult sim_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    return sim_cuStreamGetCaptureInfo_v3(handle, status, NULL, NULL, NULL, NULL, NULL);
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_thread *self = sim_self();
    CUstreamCaptureMode old = self->capture_mode;
    self->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
