/*
 * explain.c: see explain.h. No state. A process that made no CUDA look-up has not read the options, and does not unless the
 * environment asks for it here.
 */
#include "explain.h"

#include "config/options.h"
#include "init.h"
#include "log.h"
#include "stats.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

static bool asked(void) {
    const char *level = getenv("CUPLUG_LOG");

    return level && (strcasecmp(level, "info") == 0 || strcasecmp(level, "debug") == 0);
}

/* The path of the driver if it is loaded. */
static const char *driver_path(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;

    return driver && dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : NULL;
}

void cuplug_explain(void) {
    enum cuplug_state state = atomic_load_explicit(&cuplug_state, memory_order_acquire);
    struct cuplug_stats total;
    const char *driver;

    cuplug_stats_total(&total);
    if (total.value[CUPLUG_STAT_allocations] || total.value[CUPLUG_STAT_failed] ||
        (state == CUPLUG_UNKNOWN && !asked()))
        return;
    cuplug_init_options();
    if (cuplug_options.log < CUPLUG_LOG_INFO || (state == CUPLUG_OFF && !cuplug_options.disable))
        return; /* off without that option: a child forked after CUDA started, whose parent will speak */
    driver = driver_path();
    if (cuplug_options.disable)
        cuplug_log(CUPLUG_LOG_INFO, "no allocation intercepted: CUPLUG_DISABLE is set");
    else if (!driver)
        cuplug_log(CUPLUG_LOG_INFO, "no allocation intercepted: the process has not loaded libcuda.so.1");
    else
        cuplug_log(
            CUPLUG_LOG_INFO,
            "no allocation intercepted: libcuda.so.1 is loaded from %s, %s (hooked: linked calls, dlsym, cuGetProcAddress, "
            "cudaGetDriverEntryPoint; not hooked: libraries opened with RTLD_DEEPBIND or dlmopen, dlvsym)",
            driver,
            state != CUPLUG_UNKNOWN ? "and look-ups came by here, but no allocation did" : "but no call or look-up came by here");
}
