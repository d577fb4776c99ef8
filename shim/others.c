/*
 * others.c: see others.h. The state is context.c's: as with several contexts.
 */
#include "others.h"

#include "context.h"

#include <dlfcn.h>

void cuplug_others_seen(void) {
    if (!cuplug_context_shared())
        cuplug_context_share();
}

void cuplug_others_look(void) {
    static const char *const libraries[] = {"libibverbs.so.1", "libgdrapi.so.2", "libgdrapi.so"};

    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries && !cuplug_context_shared(); i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);

        if (!library)
            continue;
        dlclose(library);
        cuplug_others_seen();
    }
}
