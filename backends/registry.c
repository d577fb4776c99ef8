/*
 * registry.c: see registry.h. One table, of the backends that config/options.def lists.
 */
#include "registry.h"

#include "async.h"
#include "cache.h"
#include "config/table.h"
#include "plugin.h"
#include "vmm.h"
#include "shim/live.h"
#include "shim/log.h"
#include "shim/stats.h"

#include <string.h>

static const struct cuplug_backend_ops *const backends[CUPLUG_BACKEND_COUNT] = {
    [CUPLUG_BACKEND_DIRECT] = &cuplug_backend_direct,
    [CUPLUG_BACKEND_POOL] = &cuplug_backend_pool,
    [CUPLUG_BACKEND_ARENA] = &cuplug_backend_arena,
    [CUPLUG_BACKEND_MANAGED] = &cuplug_backend_managed,
    [CUPLUG_BACKEND_ASYNC] = &cuplug_backend_async,
    [CUPLUG_BACKEND_PLUGIN] = &cuplug_backend_plugin,
};

static void *selves[CUPLUG_BACKEND_COUNT]; /* written while the options are read, before anything is served */

void *cuplug_backend_self(int number) {
    return selves[number];
}

const struct cuplug_backend_ops *cuplug_backend(int number) {
    return number >= 0 && number < CUPLUG_BACKEND_COUNT ? backends[number] : NULL;
}

/* Is it one of those that cache.h is the engine of? */
static bool caches(int number) {
    return number == CUPLUG_BACKEND_POOL || number == CUPLUG_BACKEND_ARENA || number == CUPLUG_BACKEND_MANAGED;
}

bool cuplug_backend_locate(int number, CUdeviceptr pointer, CUdeviceptr *base) {
    if (caches(number))
        return cuplug_cache_find(selves[number], pointer, base);
    if (number == CUPLUG_BACKEND_ASYNC)
        return cuplug_async_find(pointer, base);
    return number == CUPLUG_BACKEND_PLUGIN && cuplug_plugin_find(selves[number], pointer, base);
}

bool cuplug_backend_ordered(int number, CUdevice device, bool forget, struct cuplug_ordered *ordered) {
    if (!caches(number))
        return false;
    cuplug_cache_ordered(selves[number], device, forget, ordered);
    return true;
}

struct gauged {
    int backend;
    CUdevice device;
    int64_t *waste;
};

static void add_waste(const struct cuplug_record *record, void *arg) {
    const struct gauged *of = arg;

    if (caches((int)record->backend) && (of->backend == -1 || of->backend == (int)record->backend) &&
        (of->device == -1 || of->device == (CUdevice)record->device))
        *of->waste += (int64_t)(((const struct cuplug_heap_block *)record->cookie)->size - record->size);
}

void cuplug_backend_gauges(int number, CUdevice device, struct cuplug_stats *stats) {
    struct gauged of = {number, device, &stats->value[CUPLUG_STAT_waste_bytes]};

    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if ((number == -1 || number == i) && caches(i) && selves[i])
            cuplug_cache_gauges(selves[i], device, stats);
    cuplug_live_each(add_waste, &of);
}

bool cuplug_backend_share(int number, const struct cuplug_record *record) {
    return !caches(number) || cuplug_cache_share(selves[number], record->context, record->cookie);
}

void cuplug_backend_reached(int number, struct cuplug_context *context, CUdevice by) {
    if (number == CUPLUG_BACKEND_ASYNC)
        cuplug_async_reached(context, by);
    else
        cuplug_vmm_reached(context, by);
}

void cuplug_backend_thread_ends(struct cuplug_kept *kept) {
    cuplug_cache_thread_ends(kept);
}

int cuplug_backend_choose(const char *spec) {
    const char *options;
    size_t length;
    const struct cuplug_backend_row *row = cuplug_backend_of(spec, strlen(spec), &length, &options);

    for (int i = 0; row && i < CUPLUG_BACKEND_COUNT; i++) {
        const char *name = backends[i]->name;

        if (strcmp(name, row->name) == 0) {
            if (i == CUPLUG_BACKEND_PLUGIN)
                options = spec;
            if (!backends[i]->open || backends[i]->open(options ? options : "", &selves[i]) == CUDA_SUCCESS)
                return i;
            cuplug_log(CUPLUG_LOG_ERROR, "CUPLUG_BACKEND=%s: %s could not be set up; using direct", spec, name);
            return CUPLUG_BACKEND_DIRECT;
        }
    }
    return CUPLUG_BACKEND_DIRECT;
}
