/*
 * limit.c: see limit.h. Owns what is charged.
 */
#include "limit.h"

#include "backends/budget.h"
#include "backends/registry.h"
#include "config/options.h"

bool cuplug_limited;

static int limited_backend;
static struct cuplug_budget charged;

void cuplug_limit_init(int backend) {
    cuplug_limited = !cuplug_options.limit.percent || cuplug_options.limit.value < 100;
    limited_backend = backend;
}

static size_t limit_of(CUdevice device) {
    size_t total = 0;

    if (cuplug_options.limit.percent && cuplug_real.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
        return SIZE_MAX;
    return cuplug_amount_of(cuplug_options.limit, total);
}

static bool is_charged(int backend, int kind) {
    return cuplug_limited && backend == limited_backend && (kind == CUPLUG_SYNC || kind == CUPLUG_ASYNC);
}

bool cuplug_limit_charge(int backend, int kind, CUdevice device, size_t size) {
    return !is_charged(backend, kind) || cuplug_budget_take(&charged, device, limit_of(device), size);
}

void cuplug_limit_charge_anyway(int backend, int kind, CUdevice device, size_t size) {
    if (is_charged(backend, kind))
        cuplug_budget_take(&charged, device, SIZE_MAX, size);
}

void cuplug_limit_discharge(int backend, int kind, CUdevice device, size_t size) {
    if (is_charged(backend, kind))
        cuplug_budget_give(&charged, device, size);
}

size_t cuplug_limit_leaves(CUdevice device, size_t free) {
    size_t live, limit;

    if (!cuplug_limited)
        return free;
    live = atomic_load(&charged.taken[device % CUPLUG_STATS_DEVICES]);
    limit = limit_of(device);
    return live >= limit ? 0 : free < limit - live ? free : limit - live;
}
