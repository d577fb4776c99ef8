/*
 * handles.c — contexts, streams and events as slots that never move and are reused at once.
 *
 * The last slot freed is the next handed out, so that a program (or a shim) that keeps a stale handle meets a stranger
 * instead of luck. A handle is valid when it points at a live slot; nothing is ever read through an unchecked handle.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 256

struct slots {
    size_t size;
    char **chunk;
    size_t chunks;
    void **free;
    size_t nfree, free_room;
};

static struct slots contexts = {.size = sizeof(struct sim_ctx)};
static struct slots streams = {.size = sizeof(struct sim_stream)};
static struct slots events = {.size = sizeof(struct sim_event)};

static void push_free(struct slots *s, void *slot) {
    if (s->nfree == s->free_room) {
        s->free_room = s->free_room ? s->free_room * 2 : CHUNK;
        s->free = realloc(s->free, s->free_room * sizeof(*s->free));
    }
    s->free[s->nfree++] = slot;
}

static void *take(struct slots *s) {
    if (s->nfree == 0) {
        s->chunk = realloc(s->chunk, (s->chunks + 1) * sizeof(*s->chunk));
        char *chunk = calloc(CHUNK, s->size);
        s->chunk[s->chunks++] = chunk;
        for (size_t i = CHUNK; i-- > 0;)
            push_free(s, chunk + i * s->size);
    }
    void *slot = s->free[--s->nfree];
    memset(slot, 0, s->size);
    return slot;
}

static void *check(struct slots *s, const void *handle) {
    uintptr_t h = (uintptr_t)handle;
    for (size_t i = 0; i < s->chunks; i++) {
        uintptr_t base = (uintptr_t)s->chunk[i];
        if (h >= base && h < base + CHUNK * s->size)
            return (h - base) % s->size == 0 ? (void *)h : NULL;
    }
    return NULL;
}

struct sim_ctx *sim_ctx_new(void) {
    struct sim_ctx *ctx = take(&contexts);
    ctx->live = true;
    return ctx;
}

struct sim_stream *sim_stream_new(void) {
    struct sim_stream *stream = take(&streams);
    stream->live = true;
    return stream;
}

struct sim_event *sim_event_new(void) {
    struct sim_event *event = take(&events);
    event->live = true;
    return event;
}

struct sim_ctx *sim_ctx_check(CUcontext handle) {
    struct sim_ctx *ctx = check(&contexts, handle);
    return ctx && (ctx->live || ctx->primary) ? ctx : NULL;
}

struct sim_stream *sim_stream_check(CUstream handle) {
    struct sim_stream *stream = check(&streams, handle);
    return stream && stream->live ? stream : NULL;
}

struct sim_event *sim_event_check(CUevent handle) {
    struct sim_event *event = check(&events, handle);
    return event && event->live ? event : NULL;
}

void sim_ctx_drop(struct sim_ctx *ctx) {
    ctx->live = false;
    push_free(&contexts, ctx);
}

void sim_stream_drop(struct sim_stream *stream) {
    stream->live = false;
    push_free(&streams, stream);
}

void sim_event_drop(struct sim_event *event) {
    event->live = false;
    push_free(&events, event);
}

void sim_stream_each(void (*visit)(struct sim_stream *, void *), void *arg) {
    for (size_t i = 0; i < streams.chunks; i++)
        for (size_t k = 0; k < CHUNK; k++) {
            struct sim_stream *stream = (void *)(streams.chunk[i] + k * streams.size);
            if (stream->live)
                visit(stream, arg);
        }
}

struct sim_stream *sim_stream_find_per_thread(struct sim_ctx *ctx, unsigned long long thread) {
    for (size_t i = 0; i < streams.chunks; i++)
        for (size_t k = 0; k < CHUNK; k++) {
            struct sim_stream *stream = (void *)(streams.chunk[i] + k * streams.size);
            if (stream->live && stream->type == SIM_PER_THREAD && stream->thread == thread && stream->ctx == ctx)
                return stream;
        }
    return NULL;
}

void sim_ctx_close_handles(struct sim_ctx *ctx) {
    for (size_t i = 0; i < contexts.chunks; i++)
        for (size_t k = 0; k < CHUNK; k++) {
            struct sim_ctx *green = (void *)(contexts.chunk[i] + k * contexts.size);
            if (green->live && green->green && green->parent == ctx) {
                sim_ctx_close_handles(green);
                sim_ctx_drop(green);
            }
        }
    for (size_t i = 0; i < streams.chunks; i++)
        for (size_t k = 0; k < CHUNK; k++) {
            struct sim_stream *stream = (void *)(streams.chunk[i] + k * streams.size);
            if (stream->live && stream->ctx == ctx)
                sim_stream_destroy(stream);
        }
    for (size_t i = 0; i < events.chunks; i++)
        for (size_t k = 0; k < CHUNK; k++) {
            struct sim_event *event = (void *)(events.chunk[i] + k * events.size);
            if (event->live && event->ctx == ctx)
                sim_event_destroy(event);
        }
}
