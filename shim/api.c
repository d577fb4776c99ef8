/*
 * api.c: see cuplug.h, the public interface. No state.
 */
#define CUPLUG_API __attribute__((visibility("default")))
#include "cuplug.h"

#include "backends/registry.h"
#include "capture.h"
#include "core.h"
#include "init.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

int cuplug_api_version(void) {
    return 1;
}

static bool at_work(void) {
    return atomic_load_explicit(&cuplug_state, memory_order_acquire) == CUPLUG_ON || cuplug_over();
}

const char *cuplug_get_backend(void) {
    return at_work() ? cuplug_backend(cuplug_core_chosen())->name : NULL;
}

const char *cuplug_stat_name(int number) {
    return cuplug_stats_name(number);
}

int cuplug_get_stat(const char *name, int device, long long *value) {
    struct cuplug_stats stats;

    if (!name || !value)
        return -EINVAL;
    if (device == -1)
        cuplug_stats_total(&stats);
    else if (!cuplug_stats_device(device, &stats))
        return -ENODEV;
    for (int i = 0; i < CUPLUG_STAT_COUNT; i++) {
        if (strcmp(name, cuplug_stats_name(i)) != 0)
            continue;
        if (i >= CUPLUG_STAT_idle_bytes)
            cuplug_backend_gauges(-1, device, &stats);
        *value = stats.value[i];
        return 0;
    }
    return -ENOENT;
}

long long cuplug_trim(int device) {
    if (!at_work() || cuplug_exiting())
        return -EAGAIN;
    if (device < 0 || device >= CUPLUG_STATS_DEVICES)
        return -ENODEV;
    if (cuplug_capturing())
        return -EBUSY;
    return (long long)cuplug_core_trim_all(device);
}
