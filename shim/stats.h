/*
 * stats.h: counters per backend, per device and in total. See stats.def for what each means.
 */
#ifndef CUPLUG_STATS_H
#define CUPLUG_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cuplug_counter {
#define COUNTER(field, help) CUPLUG_STAT_##field,
#define LEVEL(field, help) CUPLUG_STAT_##field, CUPLUG_STAT_peak_##field,
#define GAUGE(field, help) CUPLUG_STAT_##field,
#include "stats.def"
#undef COUNTER
#undef LEVEL
#undef GAUGE
    CUPLUG_STAT_COUNT, /* the gauges, from idle_bytes on, are the last */
};

enum { CUPLUG_STATS_BACKENDS = 8, CUPLUG_STATS_DEVICES = 64 };

/* Figures at one moment. */
struct cuplug_stats {
    int64_t value[CUPLUG_STAT_COUNT];
};

/* Raises the most that a figure was. */
static inline void cuplug_raise_to(_Atomic size_t *high, size_t now) {
    size_t before = atomic_load_explicit(high, memory_order_relaxed);

    while (before < now && !atomic_compare_exchange_weak_explicit(high, &before, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* What one thread has counted of one backend and device and not settled yet. Only the thread writes. */
struct cuplug_tally {
    _Atomic int backend, device;
    _Atomic int64_t allocations, frees;
    struct cuplug_tally_level {
        _Atomic int64_t now, high; /* the change since it was settled, and the most that it was */
    } blocks, bytes;
};

/* Settles what the calling thread has counted. */
void cuplug_stats_settle(struct cuplug_tally *tally);

/* So much of it waits to be settled at most. */
enum { CUPLUG_UNSETTLED = 16 << 20 /* bytes */, CUPLUG_UNSETTLED_BLOCKS = 64 };

static inline bool cuplug_tally_is(const struct cuplug_tally *tally, int backend, int device) {
    return atomic_load_explicit(&tally->backend, memory_order_relaxed) == backend && atomic_load_explicit(&tally->device, memory_order_relaxed) == device;
}

/* Only the owner writes. */
static inline __attribute__((always_inline)) int64_t cuplug_tally_add(_Atomic int64_t *value, int64_t by) {
    int64_t now = atomic_load_explicit(value, memory_order_relaxed) + by;

    atomic_store_explicit(value, now, memory_order_relaxed);
    return now;
}

static inline int64_t cuplug_tally_raise(struct cuplug_tally_level *level, int64_t by) {
    int64_t now = cuplug_tally_add(&level->now, by);

    if (now > atomic_load_explicit(&level->high, memory_order_relaxed))
        atomic_store_explicit(&level->high, now, memory_order_relaxed);
    return now;
}

static inline __attribute__((always_inline)) void cuplug_tally_allocated(struct cuplug_tally *tally, size_t size) {
    int64_t blocks = cuplug_tally_raise(&tally->blocks, 1), bytes = cuplug_tally_raise(&tally->bytes, (int64_t)size);

    cuplug_tally_add(&tally->allocations, 1);
    if (bytes >= CUPLUG_UNSETTLED || blocks >= CUPLUG_UNSETTLED_BLOCKS)
        cuplug_stats_settle(tally);
}

static inline __attribute__((always_inline)) void cuplug_tally_freed(struct cuplug_tally *tally, size_t size) {
    int64_t blocks = cuplug_tally_add(&tally->blocks.now, -1), bytes = cuplug_tally_add(&tally->bytes.now, -(int64_t)size);

    cuplug_tally_add(&tally->frees, 1);
    if (bytes <= -CUPLUG_UNSETTLED || blocks <= -CUPLUG_UNSETTLED_BLOCKS)
        cuplug_stats_settle(tally);
}

/* Adds to a counter of backend and device and of the total. */
void cuplug_stats_count(int backend, int device, enum cuplug_counter counter, int64_t by);
#define CUPLUG_COUNT(backend, device, field, by) cuplug_stats_count(backend, device, CUPLUG_STAT_##field, by)

/* Adds (or subtracts) to a level and keeps its peak. */
void cuplug_stats_level(int backend, int device, enum cuplug_counter level, int64_t by);
#define CUPLUG_LEVEL(backend, device, field, by) cuplug_stats_level(backend, device, CUPLUG_STAT_##field, by)

/* The common events, which each thread keeps for itself for a while (see stats.c): counter, live_blocks and live_bytes of an allocation that succeeded, and of
 * its free. */
void cuplug_stats_allocated(int backend, int device, size_t size);
void cuplug_stats_freed(int backend, int device, size_t size);

/* The figures now; of a backend or device, false past the last. */
void cuplug_stats_total(struct cuplug_stats *stats);
bool cuplug_stats_backend(int backend, struct cuplug_stats *stats);
bool cuplug_stats_device(int device, struct cuplug_stats *stats);
const char *cuplug_stats_name(int counter); /* as in the JSON; NULL past the last */
bool cuplug_stats_used(const struct cuplug_stats *stats); /* anything counted? */

/* In a forked child: the lock is free, whoever held it. */
void cuplug_stats_after_fork(void);

/* Writes the summary (CUPLUG_REPORT) and the JSON file (CUPLUG_STATS) if asked for and if the process used CUDA memory. */
void cuplug_report_write(void);

#endif
