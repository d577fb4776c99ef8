/*
 * The driver asked through cuGetProcAddress: VERSIONED=1 is the 4-argument form of CUDA 11.3, VERSIONED=2 the 5-argument one
 * of 12.0. DEPTH says how many times the look-up function is first looked up through itself, as the runtimes do.
 */
#include "driver_kinds.h"
#include <cudaTypedefs.h>
#include <dlfcn.h>

#ifndef DEPTH
#define DEPTH 0
#endif

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define FLAGS CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#else
#define FLAGS CU_GET_PROC_ADDRESS_LEGACY_STREAM
#endif

#if VERSIONED == 1
#define VERSION 11030
static PFN_cuGetProcAddress_v11030 get_address;
#define FIRST "cuGetProcAddress"

static CUresult ask(const char *name, void **address) {
    return get_address(name, address, VERSION, FLAGS);
}
#else
#define VERSION 12000
static PFN_cuGetProcAddress_v12000 get_address;
#define FIRST "cuGetProcAddress_v2"

static CUresult ask(const char *name, void **address) {
    /* The status pointer may be NULL; both are in use. */
    CUdriverProcAddressQueryResult status;
    static unsigned calls;
    return get_address(name, address, VERSION, FLAGS, calls++ % 2 ? &status : NULL);
}
#endif

static void *look_up(const char *name) {
    void *address = NULL;
    CUresult error = ask(name, &address);
    if (error != CUDA_SUCCESS || !address)
        die("cuGetProcAddress(%s): error %d", name, (int)error);
    return address;
}

void reach_driver(struct driver_table *table) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        die("%s", dlerror());
    get_address = (__typeof__(get_address))dlsym(driver, FIRST);
    if (!get_address)
        die("no " FIRST);
    for (int i = 0; i < DEPTH; i++)
        get_address = (__typeof__(get_address))look_up("cuGetProcAddress");
#define DRIVER(name) table->name = (__typeof__(table->name))look_up(#name);
#include "driver_table.def"
#undef DRIVER
}
