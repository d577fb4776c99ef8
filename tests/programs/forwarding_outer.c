/*
 * The forwarding library, as cuDNN's stubs are: finds the implementation through its own handle.
 */
#include <dlfcn.h>
#include <stddef.h>

int cuFooCreate(const char *inner);
int cuFooCreate(const char *inner) {
    static int depth;
    int result = -2;
    if (++depth > 1)
        return -depth;
    void *handle = dlopen(inner, RTLD_NOW | RTLD_LOCAL);
    int (*create)(const char *) = handle ? (int (*)(const char *))dlsym(handle, "cuFooCreate") : NULL;
    if (create)
        result = create(NULL);
    depth--;
    return result;
}
