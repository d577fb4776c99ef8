/*
 * Looks every symbol of the shim's table up in every way (dlsym; cuGetProcAddress in both forms, many versions and flags) and
 * calls what it got, with zeros: the fake driver says which of its own functions was reached. The answers must be those of the
 * bare driver.
 */
#include "program.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

typedef long any_function(long, long, long, long, long, long);

static const int versions[] = {2000, 3020, 9000, 10020, 11020, 11030, 12000, 12090, 13000, 13020, 99000};
static const cuuint64_t flag_sets[] = {0, 1, 2, 0x40, 0x42};

static const struct row {
    const char *export, *asked;
} rows[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) {#export, asked},
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
    {"cuInit", "cuInit"},
    {"cuMemAlloc", "cuMemAlloc"},
    {"cuMemAlloc_v3", "cuMemAlloc_v3"},
    {"cuNoSuchThing", "cuNoSuchThing"},
};

static const char *(*last_called)(void);

/* Where an address leads. A look-up function is given a question it can answer; its short form ignores the last argument. */
static const char *leads_to(const char *asked, void *address) {
    if (!address)
        return "NULL";
    last_called();
    if (strcmp(asked, "cuGetProcAddress") == 0) {
        void *found;
        CUdriverProcAddressQueryResult status;
        ((any_function *)address)((long)"cuInit", (long)&found, 12000, 0, (long)&status, 0);
    } else if (strcmp(asked, "cuIpcOpenMemHandle") == 0) { /* its handle is a structure by value: on some processors that is an address */
        CUdeviceptr pointer;
        CUipcMemHandle handle = {{0}};
        ((CUresult(*)(CUdeviceptr *, CUipcMemHandle, unsigned))address)(&pointer, handle, 0);
    } else {
        ((any_function *)address)(0, 0, 0, 0, 0, 0);
    }
    return last_called();
}

static void probe_proc_address(PFN_cuGetProcAddress_v11030 v1, PFN_cuGetProcAddress_v12000 v2, const char *asked) {
    for (size_t v = 0; v < COUNT_OF(versions); v++) {
        for (size_t f = 0; f < COUNT_OF(flag_sets); f++) {
            void *address = (void *)0x7;
            CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
            printf("%s %d %#x:", asked, versions[v], (unsigned)flag_sets[f]);
            if (v1) {
                int code = (int)v1(asked, &address, versions[v], flag_sets[f]);
                printf(" %d %s", code, leads_to(asked, address));
            }
            if (v2) {
                int code = (int)v2(asked, &address, versions[v], flag_sets[f], &status);
                printf(" %d %d", code, (int)status);
                printf(" %s", leads_to(asked, address));
                code = (int)v2(asked, &address, versions[v], flag_sets[f], NULL);
                printf(" %d %s", code, leads_to(asked, address));
            }
            printf("\n");
        }
    }
}

static void probe_unknown_names(PFN_cuGetProcAddress_v12000 v2) {
    double start = now_ms();
    int passed = 0;
    for (int i = 0; i < 200; i++) {
        char name[32];
        void *address = NULL;
        snprintf(name, sizeof name, "cuFuture%d", i);
        if (v2(name, &address, 99000, (cuuint64_t)1 << (i % 60), NULL) == CUDA_SUCCESS && address)
            passed += strcmp(leads_to(name, address), "cuFuture") == 0;
    }
    printf("unknown names passed through: %d, in time: %s\n", passed, yes_no(now_ms() - start < 1000));
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        die("%s", dlerror());
    last_called = (const char *(*)(void))dlsym(driver, "fake_last_called");
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    if (!last_called || !init)
        die("not the fake driver");
    printf("cuInit: %d\n", (int)init(0));
    PFN_cuGetProcAddress_v11030 v1 = (PFN_cuGetProcAddress_v11030)dlsym(driver, "cuGetProcAddress");
    PFN_cuGetProcAddress_v12000 v2 = (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        printf("dlsym %s: %s\n", rows[i].export, leads_to(rows[i].asked, dlsym(driver, rows[i].export)));
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (i == 0 || strcmp(rows[i].asked, rows[i - 1].asked) != 0)
            probe_proc_address(v1, v2, rows[i].asked);
    if (v2)
        probe_unknown_names(v2);
    return 0;
}
