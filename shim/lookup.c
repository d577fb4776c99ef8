/*
 * lookup.c: answers to dlsym and cuGetProcAddress. It owns nothing but the table of pairs (name, real address) -> wrapper, made from
 * hooks.def. It must never offer what the driver lacks, and must pass on unchanged whatever it does not know for certain.
 */
#include "lookup.h"

#include "driver_api.h"
#include "init.h"
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

/* For what dlsym.S calls: a sanitizer's start-up looks its functions up by dlsym, which is ours, before instrumented code can run. */
#ifdef __clang__
#define BEFORE_SANITIZERS __attribute__((disable_sanitizer_instrumentation))
#else
#define BEFORE_SANITIZERS __attribute__((no_sanitize("address,thread,undefined")))
#endif

/* Written once by whoever is first (every writer finds the same value); read by dlsym.S without further order, as the code it points to is
 * older than the pointer. */
__attribute__((visibility("hidden"))) cuplug_dlsym_fn *_Atomic cuplug_real_dlsym;

BEFORE_SANITIZERS cuplug_dlsym_fn *cuplug_lookup_real_dlsym(void) {
    /* x86-64 and aarch64 base versions, then the version that moved dlsym into libc. */
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    cuplug_dlsym_fn *found = atomic_load_explicit(&cuplug_real_dlsym, memory_order_relaxed);

    for (unsigned i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        found = (cuplug_dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    atomic_store_explicit(&cuplug_real_dlsym, found, memory_order_relaxed);
    return found;
}

BEFORE_SANITIZERS int cuplug_lookup_wants(const char *name) {
    for (int i = 0; i < hook_count; i++)
        if (strcmp(hooks[i].export, name) == 0)
            return 1;
    return 0;
}

void *cuplug_lookup_dlsym(void *handle, const char *name) {
    void *address = cuplug_lookup_real_dlsym()(handle, name);

    if (!address || !cuplug_init_lookup())
        return address;
    for (int i = 0; i < hook_count; i++)
        if (address == cuplug_real_address(hooks[i].real) && strcmp(hooks[i].export, name) == 0)
            return hooks[i].wrapper;
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
