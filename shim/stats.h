/*
 * stats.h: counters per backend, per device and in total. See stats.def for what each means.
 */
#ifndef CUPLUG_STATS_H
#define CUPLUG_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum cuplug_counter {
#define COUNTER(field, help) CUPLUG_STAT_##field,
#define LEVEL(field, help) CUPLUG_STAT_##field, CUPLUG_STAT_peak_##field,
#include "stats.def"
#undef COUNTER
#undef LEVEL
    CUPLUG_STAT_COUNT
};

enum { CUPLUG_STATS_BACKENDS = 8, CUPLUG_STATS_DEVICES = 64 };

struct cuplug_stats {
    _Atomic int64_t value[CUPLUG_STAT_COUNT]; /* relaxed: figures, not synchronisation */
};

/* Adds to a counter of backend and device and of the total. */
void cuplug_stats_count(int backend, int device, enum cuplug_counter counter, int64_t by);
#define CUPLUG_COUNT(backend, device, field, by) cuplug_stats_count(backend, device, CUPLUG_STAT_##field, by)

/* Adds (or subtracts) to a level and keeps its peak. */
void cuplug_stats_level(int backend, int device, enum cuplug_counter level, int64_t by);
#define CUPLUG_LEVEL(backend, device, field, by) cuplug_stats_level(backend, device, CUPLUG_STAT_##field, by)

/* For the report. */
const struct cuplug_stats *cuplug_stats_total(void);
const struct cuplug_stats *cuplug_stats_backend(int backend); /* NULL past the last */
const struct cuplug_stats *cuplug_stats_device(int device);
const char *cuplug_stats_name(int counter); /* as in the JSON; NULL past the last */
bool cuplug_stats_used(const struct cuplug_stats *stats); /* anything counted? */

static inline int64_t cuplug_stats_get(const struct cuplug_stats *stats, enum cuplug_counter counter) {
    return atomic_load_explicit(&stats->value[counter], memory_order_relaxed);
}

/* Writes the summary (CUPLUG_REPORT) and the JSON file (CUPLUG_STATS) if asked for and if the process used CUDA memory. */
void cuplug_report_write(void);

#endif
