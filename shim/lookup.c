/*
 * lookup.c: answers to dlsym and cuGetProcAddress. It owns nothing but the table of pairs (name, real address) -> wrapper, made from
 * hooks.def. It must never offer what the driver lacks, and must pass on unchanged whatever it does not know for certain.
 */
#include "lookup.h"

#include "driver_api.h"
#include "init.h"
#include "next.h"
#include "real.h"

#include <dlfcn.h>
#include <string.h>

struct hook {
    const char *export; /* what dlsym is asked for */
    const char *asked;  /* what cuGetProcAddress is asked for */
    enum cuplug_real_index real;
    void *wrapper;
};

static const struct hook hooks[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) {#export, asked, CUPLUG_REAL_##export, (void *)wrapper},
#include "hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
};
static const int hook_count = sizeof hooks / sizeof *hooks;

CUPLUG_EARLY static bool runtime_name(const char *name) {
#define RUNTIME_HOOK(export, wrapper)  \
    if (strcmp(name, #export) == 0)    \
        return true;
#define HOOK(export, asked, version, stream, wrapper)
#include "hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
    return false;
}

/* Written once by whoever is first (every writer finds the same value); read by dlsym.S without further order, as the code it points to is
 * older than the pointer. */
__attribute__((visibility("hidden"))) cuplug_dlsym_fn *_Atomic cuplug_real_dlsym;

CUPLUG_EARLY static void *found_nothing(void *handle, const char *name) {
    (void)handle, (void)name;
    return NULL;
}

CUPLUG_EARLY cuplug_dlsym_fn *cuplug_lookup_real_dlsym(void) {
    cuplug_dlsym_fn *found = atomic_load_explicit(&cuplug_real_dlsym, memory_order_relaxed);

    if (!found)
        found = (cuplug_dlsym_fn *)cuplug_next("dlsym");
    if (!found)
        found = found_nothing;
    atomic_store_explicit(&cuplug_real_dlsym, found, memory_order_relaxed);
    return found;
}

CUPLUG_EARLY int cuplug_lookup_wants(const char *name) {
    for (int i = 0; i < hook_count; i++)
        if (strcmp(hooks[i].export, name) == 0)
            return 1;
    return runtime_name(name);
}

void *cuplug_lookup_dlsym(void *handle, const char *name) {
    const void *caller = __builtin_extract_return_addr(__builtin_return_address(0));
    void *address = cuplug_lookup_real_dlsym()(handle, name);

    if (!address)
        return NULL;
    /* The program's own handle finds our export in any process. Without us it would have found what follows, or nothing. */
    if (cuplug_same_object(address, hooks))
        return cuplug_lookup_real_dlsym()(RTLD_NEXT, name) ? address : NULL;
    if (!cuplug_init_lookup())
        return address;
    for (int i = 0; i < hook_count; i++)
        if (address == cuplug_real_address(hooks[i].real) && strcmp(hooks[i].export, name) == 0)
            return cuplug_same_object(address, caller) ? address : hooks[i].wrapper; /* the driver means its own function */
    return address;
}

/* For cuGetProcAddress: the wrapper of the variant that the driver itself chose, or that variant. */
static void *substitute(const char *asked, void *address) {
    if (!asked || !address)
        return address;
    for (int i = 0; i < hook_count; i++)
        if (address == cuplug_real_address(hooks[i].real) && strcmp(hooks[i].asked, asked) == 0)
            return hooks[i].wrapper;
    return address;
}

CUresult cuplug_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    bool on = cuplug_init_lookup();
    CUresult result = cuplug_real.cuGetProcAddress(symbol, pfn, cudaVersion, flags);

    if (on && result == CUDA_SUCCESS && pfn)
        *pfn = substitute(symbol, *pfn);
    return result;
}

CUresult cuplug_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *symbolStatus) {
    bool on = cuplug_init_lookup();
    CUresult result = cuplug_real.cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);

    if (on && result == CUDA_SUCCESS && pfn)
        *pfn = substitute(symbol, *pfn);
    return result;
}
