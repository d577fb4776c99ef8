/*
 * A library that looks the driver up in its constructor, that is, under the loader's lock.
 */
#include <dlfcn.h>
#include <stdio.h>

__attribute__((constructor)) static void look_up(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = driver ? dlsym(driver, "cuMemFree_v2") : NULL;
    printf("found by the constructor: %s\n", found ? "yes" : "no");
    fflush(stdout);
}
