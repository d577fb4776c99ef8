/*
 * The driver opened by hand (RTLD_LOCAL) and asked name by name, as CUDA's runtimes before 11.3 did.
 */
#include "driver_kinds.h"
#include <dlfcn.h>

#define TEXT(x) #x
#define EXPORTED(x) TEXT(x)

void reach_driver(struct driver_table *table) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        die("%s", dlerror());
#define DRIVER(name)                                                                                                             \
    if (!(table->name = (__typeof__(table->name))dlsym(driver, EXPORTED(name))))                                                 \
        die("no %s", EXPORTED(name));
#include "driver_table.def"
#undef DRIVER
}
