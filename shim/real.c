/*
 * real.c: finds the real driver and its entry points. Owns the table cuplug_real; real_lock guards its filling, after which it is read
 * only. It must never load the driver: a program that does not use CUDA is to stay without it. It must not call the loader under its lock: a library's
 * constructor, which runs under the loader's lock, may be waiting for ours.
 */
#include "real.h"

#include "lock.h"
#include "lookup.h"

#include <dlfcn.h>
#include <stdatomic.h>

static struct cuplug_lock real_lock;
static _Atomic bool real_loaded; /* release by cuplug_real_load, acquire by its fast path */

static CUresult missing(void) {
    return CUDA_ERROR_NOT_INITIALIZED;
}

static const char *const symbol[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) #export,
#define NEED(export) #export,
#include "hooks.def"
#include "real.def"
#undef HOOK
#undef NEED
#undef RUNTIME_HOOK
};

struct cuplug_real cuplug_real = {
    {{
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) .export = (__typeof__(&export))(void *)missing,
#define NEED(export) .export = (__typeof__(&export))(void *)missing,
#include "hooks.def"
#include "real.def"
#undef HOOK
#undef NEED
#undef RUNTIME_HOOK
    }},
};

_Static_assert(sizeof(struct cuplug_real) == CUPLUG_REAL_COUNT * sizeof(void *), "one pointer a slot");

bool cuplug_real_load(void) {
    void *driver, *found[CUPLUG_REAL_COUNT];
    void **slot = (void **)&cuplug_real;

    if (atomic_load_explicit(&real_loaded, memory_order_acquire))
        return true;
    driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* kept: the driver stays loaded for as long as we may call it */
    if (!driver)
        return false;
    for (int i = 0; i < CUPLUG_REAL_COUNT; i++)
        found[i] = cuplug_lookup_real_dlsym()(driver, symbol[i]);
    cuplug_lock(&real_lock);
    if (!atomic_load_explicit(&real_loaded, memory_order_relaxed)) {
        for (int i = 0; i < CUPLUG_REAL_COUNT; i++)
            if (found[i])
                slot[i] = found[i];
        atomic_store_explicit(&real_loaded, true, memory_order_release);
    }
    cuplug_unlock(&real_lock);
    return true;
}

void cuplug_real_after_fork(void) {
    real_lock = (struct cuplug_lock){0};
}

void *cuplug_real_address(enum cuplug_real_index index) {
    void *address = ((void **)&cuplug_real)[index];

    return address == (void *)missing ? NULL : address;
}
