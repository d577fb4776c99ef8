/*
 * others.c: see others.h. The state is context.c's: as with several contexts. The loader is asked as runtime_find.c does, so that a fork does not
 * leave its lock held.
 */
#include "others.h"

#include "context.h"
#include "runtime_find.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

void cuplug_others_seen(void) {
    if (!cuplug_context_shared())
        cuplug_context_share();
}

static bool loaded(const char *library) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

    return handle && dlclose(handle) == 0;
}

static int read_loads(struct dl_phdr_info *info, size_t size, void *loads) {
    (void)size;
    *(unsigned long long *)loads = info->dlpi_adds;
    return 1;
}

/* To ask for a library that is not loaded makes the loader look for it on disk: so only if it has loaded any since. */
void cuplug_others_look(void) {
    static _Atomic unsigned long long loads_seen;
    unsigned long long loads = 0;
    bool found;

    if (cuplug_context_shared() || !cuplug_runtime_loader_enter())
        return;
    dl_iterate_phdr(read_loads, &loads);
    found = loads != atomic_exchange_explicit(&loads_seen, loads, memory_order_relaxed) &&
            (loaded("libibverbs.so.1") || loaded("libgdrapi.so.2") || loaded("libgdrapi.so"));
    cuplug_runtime_loader_leave();
    if (found) /* waits, so not inside */
        cuplug_others_seen();
}
