/*
 * budget.c: see budget.h.
 */
#include "budget.h"

#include "cache.h"

bool cuplug_budget_take(struct cuplug_budget *budget, CUdevice device, size_t most, size_t size) {
    _Atomic size_t *taken = &budget->taken[device % CUPLUG_STATS_DEVICES];
    size_t now = atomic_load(taken);

    do {
        if (now > most || size > most - now)
            return false;
    } while (!atomic_compare_exchange_weak(taken, &now, now + size));
    return true;
}

void cuplug_budget_give(struct cuplug_budget *budget, CUdevice device, size_t size) {
    atomic_fetch_sub(&budget->taken[device % CUPLUG_STATS_DEVICES], size);
}

size_t cuplug_budget_room(const struct cuplug_budget *budget, CUdevice device, size_t most) {
    size_t now = atomic_load(&budget->taken[device % CUPLUG_STATS_DEVICES]);

    return now < most ? (most - now) & ~(CUPLUG_CACHE_PAGE - 1) : 0;
}
