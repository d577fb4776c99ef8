/*
 * Patterns of one thread without work on the device: pairs of one size, pairs in the order of streams, a random live set, and new
 * memory.
 */
#include "bench.h"
#include "tests/programs/program.h"

#include <math.h>
#include <stdlib.h>

static const char *const no_memory = "no memory";

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the instruction counts are taken of, so it does nothing else; false: no memory. */
__attribute__((noinline)) static bool counted_pairs(const struct bench_allocator *a, size_t size, long count, CUstream stream) {
    for (long i = 0; i < count; i++) {
        void *block = a->alloc(size, stream);
        if (!block)
            return false;
        a->free(block, size, stream);
    }
    return true;
}

__attribute__((noinline)) static bool some_pairs(const struct bench_allocator *a, size_t size, long count, int streams) {
    for (long i = 0; i < count; i++) {
        CUstream stream = streams ? bench_stream((int)(i % streams)) : NULL;
        void *block = a->alloc(size, stream);
        if (!block)
            return false;
        a->free(block, size, stream);
    }
    return true;
}

/* pair SIZE [STREAMS]: allocated and freed at once, in the order of so many streams in turn; ns= per pair, the median of some
 * loops. */
static const char *pair(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    enum { LOOPS = 5 };
    size_t size = (size_t)arguments->number[0];
    int streams = (int)arguments->number[1];
    double taken[LOOPS];
    long count = 1;

    for (int loop = 0; loop < LOOPS;) {
        double start = bench_now();
        if (!some_pairs(a, size, count, streams))
            return no_memory;
        taken[loop] = bench_now() - start;
        if (loop == 0 && taken[0] < bench_seconds / LOOPS)
            count *= 2; /* not long enough to be measured */
        else
            loop++;
    }
    qsort(taken, LOOPS, sizeof *taken, by_value);
    printf("ns=%.2f", taken[LOOPS / 2] * 1e9 / (double)count);
    return NULL;
}

/* counted SIZE COUNT [STREAM]: for the instruction counts; warm before it is counted. Stream 0: none. */
static const char *pairs_to_count(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    size_t size = (size_t)arguments->number[0];
    int stream = (int)arguments->number[2];
    if (!some_pairs(a, size, 1000, stream ? 1 : 0) ||
        !counted_pairs(a, size, arguments->number[1], stream ? bench_stream(0) : NULL))
        return no_memory;
    return NULL;
}

/* The steps of a random live set: which block is replaced, by one of what size. */
enum { STEPS = 1 << 16, MOST_LIVE = 4096 };
static struct step { unsigned slot, size; } steps[STEPS];
static struct {
    void *block;
    size_t size;
} slots[MOST_LIVE];

/* Sizes are spread evenly over the orders of magnitude, or (even) over the bytes. */
static void plan_steps(unsigned live, double least, double most, bool even) {
    uint32_t random = 12345;
    for (int i = 0; i < STEPS; i++) {
        double share = next_random(&random) / 4294967296.0;
        steps[i].slot = next_random(&random) % live;
        steps[i].size = (unsigned)(even ? least + share * (most - least) : least * pow(most / least, share));
    }
}

static bool take_step(const struct bench_allocator *a, const struct step *step) {
    if (slots[step->slot].block)
        a->free(slots[step->slot].block, slots[step->slot].size, NULL);
    slots[step->slot].block = a->alloc(step->size, NULL);
    slots[step->slot].size = step->size;
    return slots[step->slot].block != NULL;
}

__attribute__((noinline)) static bool counted_steps(const struct bench_allocator *a, long from, long count) {
    for (long i = from; i < from + count; i++)
        if (!take_step(a, &steps[i % STEPS]))
            return false;
    return true;
}

static void empty_slots(const struct bench_allocator *a) {
    for (int i = 0; i < MOST_LIVE; i++)
        if (slots[i].block) {
            a->free(slots[i].block, slots[i].size, NULL);
            slots[i].block = NULL;
        }
}

/* Fills the set and goes on until it is as it stays; as far as ten runs' time allows. */
static bool settle(const struct bench_allocator *a, unsigned live, long count) {
    double end = bench_now() + 10 * bench_seconds;
    for (unsigned i = 0; i < live; i++)
        if (!take_step(a, &(struct step){i, steps[i].size}))
            return false;
    for (long i = 0; i < count && bench_now() < end; i += 64)
        if (!counted_steps(a, i, 64))
            return false;
    return true;
}

/* random LIVE LEAST MOST [1]: ns= per step, a free and an allocation, in a set of that many live blocks; 1: sizes even over the
 * bytes. */
static const char *random_set(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    unsigned live = (unsigned)arguments->number[0];
    long done = 0;
    double start;
    bool enough;

    plan_steps(live, (double)arguments->number[1], (double)arguments->number[2], arguments->number[3] != 0);
    if (!settle(a, live, 20L * live)) {
        empty_slots(a);
        return no_memory;
    }
    start = bench_now();
    do {
        enough = !counted_steps(a, done, 64);
        done += 64;
    } while (!enough && bench_now() - start < bench_seconds * 2);
    printf("ns=%.2f", (bench_now() - start) * 1e9 / (double)done);
    empty_slots(a);
    return NULL;
}

/* counted-random LIVE LEAST MOST COUNT: for the instruction counts. */
static const char *steps_to_count(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    unsigned live = (unsigned)arguments->number[0];
    plan_steps(live, (double)arguments->number[1], (double)arguments->number[2], false);
    for (unsigned i = 0; i < live; i++)
        if (!take_step(a, &(struct step){i, steps[i].size}))
            return no_memory;
    for (long i = 0; i < 20L * live; i++)
        if (!take_step(a, &steps[i % STEPS]))
            return no_memory;
    if (!counted_steps(a, 0, arguments->number[3]))
        return no_memory;
    empty_slots(a);
    return NULL;
}

/* grow COUNT SIZE: ns= per allocation of so many that stay. New memory, if the worker is new or has never had that much. The
 * small block before is for what an allocator sets up at its first call. */
static const char *grow(const struct bench_allocator *a, const struct bench_arguments *arguments) {
    int count = (int)arguments->number[0], done;
    size_t size = (size_t)arguments->number[1];
    double start;

    if (count > MOST_LIVE)
        return "too many";
    if (!some_pairs(a, 512, 1, 0))
        return no_memory;
    start = bench_now();
    for (done = 0; done < count; done++)
        if ((slots[done].block = a->alloc(size, NULL)) == NULL)
            break;
    start = bench_now() - start;
    for (int i = 0; i < done; i++) {
        a->free(slots[i].block, size, NULL);
        slots[i].block = NULL;
    }
    if (done < count)
        return no_memory;
    printf("ns=%.1f", start * 1e9 / count);
    return NULL;
}

const struct bench_pattern bench_pairs_patterns[] = {
    {"pair", pair}, {"counted", pairs_to_count}, {"random", random_set}, {"counted-random", steps_to_count}, {"grow", grow}, {0}};
