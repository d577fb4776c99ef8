/*
 * Replays what a program allocated and freed (traces/, made readable by workers.py: "slot size stream" allocates, "slot 0 stream"
 * frees).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

static struct {
    char *name;
    struct event {
        unsigned slot;
        int stream; /* 0: none */
        size_t size;
    } * events;
    long count;
    unsigned slots;
} trace;

static void **blocks;
static size_t *sizes;

static bool read_trace(const char *path) {
    FILE *file;
    struct event event;
    long room = 0;

    if (trace.name && strcmp(trace.name, path) == 0)
        return true;
    if ((file = fopen(path, "r")) == NULL)
        return false;
    free(trace.name);
    trace.name = strdup(path);
    trace.count = 0;
    trace.slots = 0;
    while (fscanf(file, "%u %zu %d", &event.slot, &event.size, &event.stream) == 3) {
        if (trace.count == room) {
            room = room ? 2 * room : 4096;
            trace.events = realloc(trace.events, (size_t)room * sizeof event);
        }
        trace.events[trace.count++] = event;
        if (event.slot >= trace.slots)
            trace.slots = event.slot + 1;
    }
    fclose(file);
    blocks = realloc(blocks, trace.slots * sizeof *blocks);
    sizes = realloc(sizes, trace.slots * sizeof *sizes);
    memset(blocks, 0, trace.slots * sizeof *blocks);
    return trace.count > 0;
}

static CUstream stream_of(int number) {
    return number ? bench_stream(number % BENCH_STREAMS) : NULL;
}

static bool play(const struct bench_allocator *a, const struct event *e) {
    CUstream stream = stream_of(e->stream);
    if (e->size == 0) {
        if (blocks[e->slot])
            a->free(blocks[e->slot], sizes[e->slot], stream);
        blocks[e->slot] = NULL;
        return true;
    }
    blocks[e->slot] = a->alloc(e->size, stream);
    sizes[e->slot] = e->size;
    return blocks[e->slot] != NULL;
}

static void free_the_rest(const struct bench_allocator *a) {
    for (unsigned i = 0; i < trace.slots; i++)
        if (blocks[i]) {
            a->free(blocks[i], sizes[i], NULL);
            blocks[i] = NULL;
        }
}

/* replay FILE [MOST MILLISECONDS]: ns= per allocation with its free, share= how much of the trace came about in that time. */
static const char *replay(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    double start, most = arguments->count ? (double)arguments->number[0] * 1e-3 : 1;
    long done, allocations = 0;
    bool failed = false;

    if (!arguments->text || !read_trace(arguments->text))
        return "cannot read the trace";
    for (int i = 0; i < BENCH_STREAMS; i++)
        bench_stream(i);
    start = bench_now();
    for (done = 0; done < trace.count && !failed; done++) {
        failed = !play(a, &trace.events[done]);
        allocations += trace.events[done].size > 0;
        if (done % 64 == 0 && bench_now() - start > most)
            break;
    }
    start = bench_now() - start;
    free_the_rest(a);
    if (failed)
        return "no memory";
    printf("ns=%.2f share=%.3f", start * 1e9 / (double)allocations, (double)done / (double)trace.count);
    return NULL;
}

/* A kernel of so many seconds, as far as order goes: the next one of a trace's program, in the order of its stream. */
static double kernel_seconds;

static void CUDA_CB kernel(void *unused) {
    double until = bench_now() + kernel_seconds;

    (void)unused;
    while (bench_now() < until)
        ;
}

/* footprint FILE [MICROSECONDS]: the most bytes held of the driver and the most in use, from the moment that all idle memory was given back (but for
 * held=). With a kernel of so long behind each allocation; the host runs ahead of them. */
static const char *footprint(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    size_t reserved = 0, live = 0, peak = 0, held;

    if (!a->reserved || !a->trim)
        return "does not tell";
    if (!arguments->text || !read_trace(arguments->text))
        return "cannot read the trace";
    cuCtxSynchronize();
    a->trim();
    held = a->reserved();
    kernel_seconds = (double)arguments->number[0] * 1e-6;
    for (long i = 0; i < trace.count; i++) {
        const struct event *e = &trace.events[i];
        size_t now;
        live -= e->size == 0 && blocks[e->slot] ? sizes[e->slot] : 0;
        if (!play(a, e) || (arguments->count && e->size && cuLaunchHostFunc(stream_of(e->stream), kernel, NULL) != CUDA_SUCCESS)) {
            free_the_rest(a);
            return "no memory, or no kernel";
        }
        live += e->size;
        if (live > peak)
            peak = live;
        if (i % 16 == 0 && (now = a->reserved()) > reserved)
            reserved = now;
    }
    free_the_rest(a);
    cuCtxSynchronize();
    printf("reserved=%zu live=%zu held=%zu", reserved, peak, held);
    return NULL;
}

const struct bench_pattern bench_replay_patterns[] = {{"replay", replay}, {"footprint", footprint}, {0}};
