/*
 * budget.h: how much a backend has taken for each device, and that it is never more than its max=. Lock-free: raised before the driver is asked, so that
 * two threads cannot both take the last of it.
 */
#ifndef CUPLUG_BUDGET_H
#define CUPLUG_BUDGET_H

#include "shim/context.h"
#include "shim/stats.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cuplug_budget {
    _Atomic size_t taken[CUPLUG_STATS_DEVICES];
};

/* False, and nothing taken, if it came to more than `most` bytes on the device. */
bool cuplug_budget_take(struct cuplug_budget *budget, CUdevice device, size_t most, size_t size);
void cuplug_budget_give(struct cuplug_budget *budget, CUdevice device, size_t size);

/* Bytes that may yet be taken, in whole pages of the driver's. */
size_t cuplug_budget_room(const struct cuplug_budget *budget, CUdevice device, size_t most);

#endif
