/*
 * Looks up every symbol of the shim's table in every way there is and says where each leads: the library, and the place in it (with the driver, the
 * symbol). One line each, "way symbol: where". Made from the table, so a row that no way reaches shows.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "program.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>

enum { ANY, LEGACY, PER_THREAD };

#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) extern __typeof__(export) export __attribute__((weak)); /* the driver may be older */
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
cudaError_t cudaMallocAsync_ptsz(void **memory, size_t size, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *memory, cudaStream_t stream);

static const struct row {
    const char *export, *asked;
    int version, stream;
    void *linked;
} rows[] = {
#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) {#export, asked, version, stream, (void *)export},
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
};

static const struct row runtime_rows[] = {
#define RUNTIME_HOOK(export, wrapper) {#export, NULL, 0, 0, (void *)export},
#define HOOK(export, asked, version, stream, wrapper)
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
};

static void say(const char *way, const struct row *row, void *address) {
    Dl_info where;
    printf("%s %s:", way, row->export);
    if (!address || !dladdr(address, &where)) {
        printf(" nowhere\n");
        return;
    }
    const char *slash = strrchr(where.dli_fname, '/');
    const char *library = slash ? slash + 1 : where.dli_fname;
    if (strstr(library, "cuplug"))
        printf(" shim %#lx\n", (unsigned long)((char *)address - (char *)where.dli_fbase));
    else
        printf(" %s %s\n", strncmp(library, "libcuda.so", 10) == 0 ? "driver" : library, where.dli_sname ? where.dli_sname : "?");
}

static PFN_cuGetProcAddress_v11030 v1;
static PFN_cuGetProcAddress_v12000 v2;

static cuuint64_t flag(const struct row *row) {
    return row->stream == PER_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
}

static void *ask_v1(const struct row *row) {
    void *address = NULL;
    return v1 && v1(row->asked, &address, row->version, flag(row)) == CUDA_SUCCESS ? address : NULL;
}

static void *ask_v2(const struct row *row) {
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    return v2 && v2(row->asked, &address, row->version, flag(row), &status) == CUDA_SUCCESS ? address : NULL;
}

static void *ask_runtime(const struct row *row) {
    unsigned long long flags = row->stream == PER_THREAD ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
    enum cudaDriverEntryPointQueryResult status;
    void *address = NULL;
    return cudaGetDriverEntryPointByVersion(row->asked, &address, (unsigned)row->version, flags, &status) == cudaSuccess ? address : NULL;
}

/* The variant that is newest for this runtime, which need not be the row's. */
static void *ask_runtime_newest(const struct row *row) {
    unsigned long long flags = row->stream == PER_THREAD ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
    enum cudaDriverEntryPointQueryResult status;
    void *address = NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return cudaGetDriverEntryPoint(row->asked, &address, flags, &status) == cudaSuccess ? address : NULL;
#pragma GCC diagnostic pop
}

static void *driver;

static void *by_handle(const struct row *row) {
    return dlsym(driver, row->export);
}

static void *by_default(const struct row *row) {
    return dlsym(RTLD_DEFAULT, row->export);
}

static void *linked(const struct row *row) {
    return row->linked;
}

static void each(const char *way, void *(*find)(const struct row *)) {
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        say(way, &rows[i], find(&rows[i]));
}

int main(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        die("%s", dlerror());
    cudaFree(NULL); /* the runtime looks for its driver */
    each("linked", linked);
    each("dlsym", by_handle);
    each("dlsym-default", by_default);
    v1 = (PFN_cuGetProcAddress_v11030)dlsym(driver, "cuGetProcAddress");
    v2 = (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2");
    each("cuGetProcAddress", ask_v1);
    each("cuGetProcAddress_v2", ask_v2);
    for (int i = 0; i < 3; i++) { /* as the runtimes do: the look-up looked up through itself */
        void *again = NULL;
        if (v1 && v1("cuGetProcAddress", &again, 11030, 0) == CUDA_SUCCESS)
            v1 = (PFN_cuGetProcAddress_v11030)again;
        if (v2 && v2("cuGetProcAddress", &again, 12000, 0, NULL) == CUDA_SUCCESS)
            v2 = (PFN_cuGetProcAddress_v12000)again;
    }
    each("cuGetProcAddress-deep", ask_v1);
    each("cuGetProcAddress_v2-deep", ask_v2);
    each("cudaGetDriverEntryPointByVersion", ask_runtime);
    each("cudaGetDriverEntryPoint", ask_runtime_newest);
    for (size_t i = 0; i < COUNT_OF(runtime_rows); i++)
        say("linked", &runtime_rows[i], runtime_rows[i].linked);
    return 0;
}
