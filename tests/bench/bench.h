/*
 * The benchmark's worker from the inside: what a pattern gets, what it answers, and how time is taken.
 */
#ifndef CUPLUG_BENCH_H
#define CUPLUG_BENCH_H

#include "allocator.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* One command's arguments: numbers, and for a replay the file's name. */
struct bench_arguments {
    long number[4];
    int count;
    const char *text;
};

/* Runs once; prints its figures as key=value and returns NULL, or says why it could not. */
typedef const char *bench_run(const struct bench_allocator *a, const struct bench_arguments *arguments);

struct bench_pattern {
    const char *name;
    bench_run *run;
};

/* Each ended by an entry without a name. */
extern const struct bench_pattern bench_pairs_patterns[], bench_threads_patterns[], bench_kernels_patterns[],
    bench_replay_patterns[];

extern CUcontext bench_context; /* the device's primary one; current in the first thread */
extern double bench_seconds;    /* how long one timed run is to last, about */

static inline double bench_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The stream of this number, made at its first use. Called by one thread. */
CUstream bench_stream(int number);
enum { BENCH_STREAMS = 64 };

#endif
