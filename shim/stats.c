/*
 * stats.c: see stats.h. Owns the counters, all of them relaxed atomics.
 *
 * Allocations and frees are counted in a tally of the thread's own, which nobody else writes, and settled with the rest now and then: when many bytes
 * have come or gone, when the thread ends. Whoever reads adds what is not settled yet. So totals are exact once the threads have stopped; a peak that
 * several threads reach together is known up to CUPLUG_UNSETTLED bytes and CUPLUG_UNSETTLED_BLOCKS blocks a thread.
 */
#include "stats.h"

#include "lock.h"
#include "thread.h"

#include <stdatomic.h>

static const char *const names[] = {
#define COUNTER(field, help) #field,
#define LEVEL(field, help) #field, "peak_" #field,
#define GAUGE(field, help) #field,
#include "stats.def"
#undef COUNTER
#undef LEVEL
#undef GAUGE
};

struct cells {
    _Atomic int64_t value[CUPLUG_STAT_COUNT];
};

static struct cuplug_lock lock; /* settling against reading; a thread's own counting goes without */
static struct cells total, by_backend[CUPLUG_STATS_BACKENDS], by_device[CUPLUG_STATS_DEVICES];

static int64_t get(const _Atomic int64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void raise_to(_Atomic int64_t *high, int64_t to) {
    int64_t before = get(high);

    while (before < to && !atomic_compare_exchange_weak_explicit(high, &before, to, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void add(struct cells *cells, enum cuplug_counter counter, int64_t by) {
    atomic_fetch_add_explicit(&cells->value[counter], by, memory_order_relaxed);
}

/* `high`: the most that the level was above its value before. */
static void move(struct cells *cells, enum cuplug_counter level, int64_t by, int64_t high) {
    raise_to(&cells->value[level + 1], atomic_fetch_add_explicit(&cells->value[level], by, memory_order_relaxed) + high);
}

static struct cells *of_backend(int backend) {
    return backend >= 0 && backend < CUPLUG_STATS_BACKENDS ? &by_backend[backend] : NULL;
}

/* A device beyond the table is counted in the total and its backend only. */
static struct cells *of_device(int device) {
    return device >= 0 && device < CUPLUG_STATS_DEVICES ? &by_device[device] : NULL;
}

void cuplug_stats_count(int backend, int device, enum cuplug_counter counter, int64_t by) {
    add(&total, counter, by);
    if (of_backend(backend))
        add(of_backend(backend), counter, by);
    if (of_device(device))
        add(of_device(device), counter, by);
}

static void level(int backend, int device, enum cuplug_counter which, int64_t by, int64_t high) {
    move(&total, which, by, high);
    if (of_backend(backend))
        move(of_backend(backend), which, by, high);
    if (of_device(device))
        move(of_device(device), which, by, high);
}

void cuplug_stats_level(int backend, int device, enum cuplug_counter which, int64_t by) {
    level(backend, device, which, by, by > 0 ? by : 0);
}

static int64_t reset(_Atomic int64_t *value) {
    int64_t was = get(value);

    atomic_store_explicit(value, 0, memory_order_relaxed);
    return was;
}

static void settle_level(int backend, int device, enum cuplug_counter which, struct cuplug_tally_level *change) {
    int64_t now = reset(&change->now), high = reset(&change->high);

    if (now || high)
        level(backend, device, which, now, high);
}

/* The lock is held. */
static void settle(struct cuplug_tally *tally) {
    int backend = atomic_load_explicit(&tally->backend, memory_order_relaxed);
    int device = atomic_load_explicit(&tally->device, memory_order_relaxed);

    cuplug_stats_count(backend, device, CUPLUG_STAT_allocations, reset(&tally->allocations));
    cuplug_stats_count(backend, device, CUPLUG_STAT_frees, reset(&tally->frees));
    settle_level(backend, device, CUPLUG_STAT_live_blocks, &tally->blocks);
    settle_level(backend, device, CUPLUG_STAT_live_bytes, &tally->bytes);
}

__attribute__((noinline, cold)) void cuplug_stats_settle(struct cuplug_tally *tally) {
    cuplug_lock(&lock);
    settle(tally);
    cuplug_unlock(&lock);
}

/* The tally is to count for another backend and device. */
static __attribute__((noinline, cold)) void turn_to(struct cuplug_tally *tally, int backend, int device) {
    cuplug_lock(&lock);
    settle(tally);
    atomic_store_explicit(&tally->backend, backend, memory_order_relaxed);
    atomic_store_explicit(&tally->device, device, memory_order_relaxed);
    cuplug_unlock(&lock);
}

/* The thread's tally, of this backend and device; NULL if it has none. One at a time, so that a thread's own peak is exact. */
static struct cuplug_tally *tally_of(int backend, int device) {
    struct cuplug_kept *kept = cuplug_kept();

    if (!kept)
        return NULL;
    if (!cuplug_tally_is(&kept->tally, backend, device))
        turn_to(&kept->tally, backend, device);
    return &kept->tally;
}

/* In a thread that keeps nothing. */
static __attribute__((noinline, cold)) void count_at_once(int backend, int device, enum cuplug_counter counter, int64_t blocks, int64_t bytes) {
    cuplug_stats_count(backend, device, counter, 1);
    cuplug_stats_level(backend, device, CUPLUG_STAT_live_blocks, blocks);
    cuplug_stats_level(backend, device, CUPLUG_STAT_live_bytes, bytes);
}

void cuplug_stats_allocated(int backend, int device, size_t size) {
    struct cuplug_tally *tally = tally_of(backend, device);

    if (tally)
        cuplug_tally_allocated(tally, size);
    else
        count_at_once(backend, device, CUPLUG_STAT_allocations, 1, (int64_t)size);
}

void cuplug_stats_freed(int backend, int device, size_t size) {
    struct cuplug_tally *tally = tally_of(backend, device);

    if (tally)
        cuplug_tally_freed(tally, size);
    else
        count_at_once(backend, device, CUPLUG_STAT_frees, -1, -(int64_t)size);
}

enum { ANY = -1 };

static bool concerns(const struct cuplug_tally *tally, int backend, int device) {
    return (backend == ANY || atomic_load_explicit(&tally->backend, memory_order_relaxed) == backend) &&
           (device == ANY || atomic_load_explicit(&tally->device, memory_order_relaxed) == device);
}

/* Calls `visit` for every tally that concerns this backend and device. */
static void each_tally(int backend, int device, void (*visit)(const struct cuplug_tally *tally, struct cuplug_stats *stats),
                       struct cuplug_stats *stats) {
    for (struct cuplug_kept *kept = cuplug_kept_first(); kept; kept = kept->next)
        if (concerns(&kept->tally, backend, device))
            visit(&kept->tally, stats);
}

static void add_unsettled(const struct cuplug_tally *tally, struct cuplug_stats *stats) {
    stats->value[CUPLUG_STAT_allocations] += get(&tally->allocations);
    stats->value[CUPLUG_STAT_frees] += get(&tally->frees);
    stats->value[CUPLUG_STAT_live_blocks] += get(&tally->blocks.now);
    stats->value[CUPLUG_STAT_live_bytes] += get(&tally->bytes.now);
}

static void reached(struct cuplug_stats *stats, enum cuplug_counter which, const struct cuplug_tally_level *change) {
    int64_t peak = stats->value[which] - get(&change->now) + get(&change->high);

    if (stats->value[which + 1] < peak)
        stats->value[which + 1] = peak;
}

/* Once the levels are complete. */
static void raise_peaks(const struct cuplug_tally *tally, struct cuplug_stats *stats) {
    reached(stats, CUPLUG_STAT_live_blocks, &tally->blocks);
    reached(stats, CUPLUG_STAT_live_bytes, &tally->bytes);
}

/* Threads that go on meanwhile may make a free seen and its allocation not. */
static void no_less_than_nothing(struct cuplug_stats *stats, enum cuplug_counter which) {
    if (stats->value[which] < 0)
        stats->value[which] = 0;
}

/* At the end of the process whoever holds the lock may be gone for ever: then without. */
static bool look(const struct cells *cells, int backend, int device, struct cuplug_stats *stats) {
    bool locked = cuplug_lock_soon(&lock);

    if (cells) {
        for (int i = 0; i < CUPLUG_STAT_COUNT; i++)
            stats->value[i] = get(&cells->value[i]);
        each_tally(backend, device, add_unsettled, stats);
        each_tally(backend, device, raise_peaks, stats);
        no_less_than_nothing(stats, CUPLUG_STAT_live_blocks);
        no_less_than_nothing(stats, CUPLUG_STAT_live_bytes);
    }
    if (locked)
        cuplug_unlock(&lock);
    return cells;
}

void cuplug_stats_total(struct cuplug_stats *stats) {
    look(&total, ANY, ANY, stats);
}

bool cuplug_stats_backend(int backend, struct cuplug_stats *stats) {
    return look(of_backend(backend), backend, ANY, stats);
}

bool cuplug_stats_device(int device, struct cuplug_stats *stats) {
    return look(of_device(device), ANY, device, stats);
}

const char *cuplug_stats_name(int counter) {
    return counter >= 0 && counter < CUPLUG_STAT_COUNT ? names[counter] : NULL;
}

bool cuplug_stats_used(const struct cuplug_stats *stats) {
    for (int i = 0; i < CUPLUG_STAT_COUNT; i++)
        if (stats->value[i])
            return true;
    return false;
}

void cuplug_stats_after_fork(void) {
    lock = (struct cuplug_lock){0};
}
