/*
 * others.c: see others.h. The state is context.c's: as with several contexts. The loader is asked as runtime_find.c does, so that a fork does not
 * leave its lock held.
 */
#include "others.h"

#include "context.h"
#include "runtime_find.h"

#include <dlfcn.h>

void cuplug_others_seen(void) {
    if (!cuplug_context_shared())
        cuplug_context_share();
}

static bool loaded(const char *library) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

    return handle && dlclose(handle) == 0;
}

void cuplug_others_look(void) {
    bool found;

    if (cuplug_context_shared() || !cuplug_runtime_loader_enter())
        return;
    found = loaded("libibverbs.so.1") || loaded("libgdrapi.so.2") || loaded("libgdrapi.so");
    cuplug_runtime_loader_leave();
    if (found) /* waits, so not inside */
        cuplug_others_seen();
}
