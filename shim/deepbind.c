/*
 * deepbind.c: see deepbind.h. Remembers the name of the first such library; no lock.
 */
#include "deepbind.h"

#include "config/options.h"
#include "init.h"
#include "log.h"
#include "next.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NATIVE, STRIP, IGNORE }; /* the choices in options.def */

__attribute__((visibility("hidden"))) void *_Atomic cuplug_real_dlopen;

static _Atomic int seen; /* 0 none, 1 being written, 2 `first` is valid (release, acquired by its reader), 3 said so */
static char first[256];

CUPLUG_EARLY static void *opened_nothing(const char *name, int flags) {
    (void)name, (void)flags;
    return NULL;
}

CUPLUG_EARLY void *cuplug_deepbind_real_dlopen(void) {
    void *found = cuplug_next("dlopen");

    if (!found)
        found = (void *)opened_nothing;
    atomic_store_explicit(&cuplug_real_dlopen, found, memory_order_relaxed);
    return found;
}

/* The driver and its parts, which call the driver past us in any case, and the performance counters' library, which CUPTI opens so and which has no use
 * for a program's memory. */
static bool harmless(const char *name) {
    static const char *const starts[] = {"libcuda.so", "libnvidia-", "libnvperf_"};
    const char *slash = strrchr(name, '/');

    name = slash ? slash + 1 : name;
    for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

int cuplug_deepbind_flags(const char *name, int flags) {
    int none = 0;

    if (!name || !*name || harmless(name))
        return flags;
    cuplug_init_options();
    if (cuplug_options.disable)
        return flags;
    if (cuplug_options.deepbind == STRIP) {
        cuplug_log(CUPLUG_LOG_DEBUG, "%s: opened without RTLD_DEEPBIND (CUPLUG_DEEPBIND=strip)", name);
        return flags & ~RTLD_DEEPBIND;
    }
    cuplug_log(CUPLUG_LOG_DEBUG, "%s: opened with RTLD_DEEPBIND: what it does with device memory is not seen", name);
    if (cuplug_options.deepbind == NATIVE && atomic_compare_exchange_strong(&seen, &none, 1)) {
        snprintf(first, sizeof first, "%s", name);
        atomic_store_explicit(&seen, 2, memory_order_release);
    }
    return flags;
}

bool cuplug_deepbind_native(void) {
    int valid = 2;

    if (!atomic_load_explicit(&seen, memory_order_relaxed))
        return false;
    if (atomic_compare_exchange_strong_explicit(&seen, &valid, 3, memory_order_acquire, memory_order_relaxed))
        cuplug_log(CUPLUG_LOG_WARN,
                   "%s was opened with RTLD_DEEPBIND and bypasses cuplug: new device memory is the driver's own from here on "
                   "(CUPLUG_DEEPBIND=strip opens such libraries without the flag, ignore goes on if it frees no memory of others)",
                   first);
    return true;
}
