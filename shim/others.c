/*
 * others.c: see others.h. The state is context.c's: as with several contexts. The loader is asked as runtime_find.c does, so that a fork does not leave its lock held.
 */
#include "others.h"

#include "context.h"
#include "runtime_find.h"

#include <dlfcn.h>

static _Atomic bool found;

void cuplug_others_seen(void) {
    if (!cuplug_context_shared())
        cuplug_context_share();
}

static void look(void) {
    static const char *const libraries[] = {"libibverbs.so.1", "libgdrapi.so.2", "libgdrapi.so"};

    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries && !cuplug_context_shared() && !atomic_load(&found); i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);

        if (!library)
            continue;
        dlclose(library);
        atomic_store_explicit(&found, true, memory_order_relaxed);
    }
}

void cuplug_others_look(void) {
    cuplug_runtime_with_loader(look);
    if (atomic_load_explicit(&found, memory_order_relaxed))
        cuplug_others_seen();
}
