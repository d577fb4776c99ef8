/*
 * A library to be opened with RTLD_DEEPBIND: its look-ups go to the C library's dlsym past every preload, so that a program can
 * obtain memory that no layer in between has seen.
 */
#include <dlfcn.h>
#include <stddef.h>

void *bypass_lookup(const char *name);
void *bypass_lookup(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}
