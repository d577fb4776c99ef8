/*
 * stats.c: see stats.h. Owns the counters; all of them atomic, none guarded by a lock.
 */
#include "stats.h"

#include <stddef.h>

static const char *const names[] = {
#define COUNTER(field, help) #field,
#define LEVEL(field, help) #field, "peak_" #field,
#include "stats.def"
#undef COUNTER
#undef LEVEL
};

static struct cuplug_stats total, by_backend[CUPLUG_STATS_BACKENDS], by_device[CUPLUG_STATS_DEVICES];

static void add(struct cuplug_stats *stats, enum cuplug_counter counter, int64_t by) {
    atomic_fetch_add_explicit(&stats->value[counter], by, memory_order_relaxed);
}

static void move(struct cuplug_stats *stats, enum cuplug_counter level, int64_t by) {
    int64_t now = atomic_fetch_add_explicit(&stats->value[level], by, memory_order_relaxed) + by;
    int64_t peak = atomic_load_explicit(&stats->value[level + 1], memory_order_relaxed);

    while (now > peak && !atomic_compare_exchange_weak_explicit(&stats->value[level + 1], &peak, now, memory_order_relaxed,
                                                                memory_order_relaxed))
        ;
}

/* A device beyond the table is counted in the total and its backend only. */
void cuplug_stats_count(int backend, int device, enum cuplug_counter counter, int64_t by) {
    add(&total, counter, by);
    if (backend >= 0 && backend < CUPLUG_STATS_BACKENDS)
        add(&by_backend[backend], counter, by);
    if (device >= 0 && device < CUPLUG_STATS_DEVICES)
        add(&by_device[device], counter, by);
}

void cuplug_stats_level(int backend, int device, enum cuplug_counter level, int64_t by) {
    move(&total, level, by);
    if (backend >= 0 && backend < CUPLUG_STATS_BACKENDS)
        move(&by_backend[backend], level, by);
    if (device >= 0 && device < CUPLUG_STATS_DEVICES)
        move(&by_device[device], level, by);
}

const struct cuplug_stats *cuplug_stats_total(void) {
    return &total;
}

const struct cuplug_stats *cuplug_stats_backend(int backend) {
    return backend >= 0 && backend < CUPLUG_STATS_BACKENDS ? &by_backend[backend] : NULL;
}

const struct cuplug_stats *cuplug_stats_device(int device) {
    return device >= 0 && device < CUPLUG_STATS_DEVICES ? &by_device[device] : NULL;
}

const char *cuplug_stats_name(int counter) {
    return counter >= 0 && counter < CUPLUG_STAT_COUNT ? names[counter] : NULL;
}

bool cuplug_stats_used(const struct cuplug_stats *stats) {
    for (int i = 0; i < CUPLUG_STAT_COUNT; i++)
        if (cuplug_stats_get(stats, (enum cuplug_counter)i))
            return true;
    return false;
}
