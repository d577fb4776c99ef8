/*
 * The driver's functions through the runtime: cudaGetDriverEntryPoint, or its ByVersion form with -DBY_VERSION.
 */
#include "driver_kinds.h"
#include <cuda_runtime_api.h>

static void *look_up(const char *name) {
    void *address = NULL;
    enum cudaDriverEntryPointQueryResult status;
#ifdef BY_VERSION
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &status);
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &status);
#pragma GCC diagnostic pop
#endif
    if (error != cudaSuccess || status != cudaDriverEntryPointSuccess || !address)
        die("cudaGetDriverEntryPoint(%s): error %d, status %d", name, (int)error, (int)status);
    return address;
}

void reach_driver(struct driver_table *table) {
#define DRIVER(name) table->name = (__typeof__(table->name))look_up(#name);
#include "driver_table.def"
#undef DRIVER
}
