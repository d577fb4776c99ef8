/*
 * What an allocator's library shows the benchmark's worker: `bench_allocators`, ended by an entry without a name. Each is built
 * apart, so that the benchmark also runs where one of them is missing. All functions may be called by several threads at once,
 * each with the device's primary context current.
 */
#ifndef CUPLUG_BENCH_ALLOCATOR_H
#define CUPLUG_BENCH_ALLOCATOR_H

#include <stddef.h>

struct bench_allocator {
    const char *name;
    /* Bytes in the order of `stream` (a CUstream); NULL: the legacy default stream. NULL: no memory. An allocator that knows no
     * order leaves the stream out. */
    void *(*alloc)(size_t size, void *stream);
    void (*free)(void *block, size_t size, void *stream);
    /* Bytes it holds of the driver. NULL: it does not tell. */
    size_t (*reserved)(void);
    /* Gives idle memory back to the driver; called before anything else, too. NULL: cannot. */
    void (*trim)(void);
};

#ifdef __cplusplus
extern "C"
#else
extern
#endif
    __attribute__((visibility("default"))) const struct bench_allocator bench_allocators[];

#endif
