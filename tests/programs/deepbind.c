/*
 * A library opened with RTLD_DEEPBIND frees what the program allocated, and the reverse. Argument: the library bypass.so.
 */
#include "driver.h"
#include <dlfcn.h>

static size_t available(void) {
    size_t available, total;
    CU(cuMemGetInfo(&available, &total));
    return available;
}

int main(int argc, char **argv) {
#ifdef SANITIZED
    skip("sanitizers forbid RTLD_DEEPBIND");
#endif
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
    void *(*lookup)(const char *) = library ? (void *(*)(const char *))dlsym(library, "bypass_lookup") : NULL;
    if (!lookup)
        die("%s", dlerror());
    CUresult (*their_alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))lookup("cuMemAlloc_v2");
    CUresult (*their_free)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))lookup("cuMemFree_v2");
    use_primary(0);
    size_t before = available();
    static const size_t sizes[] = {100, 5 * MIB, 100 * MIB};
    CUdeviceptr kept, ours, theirs;
    CU(cuMemAlloc(&kept, 3000));
    CU(cuMemsetD8(kept, 0x5a, 3000));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CU(cuMemAlloc(&ours, sizes[i]));
        CU(their_alloc(&theirs, sizes[i]));
        int freed_there = their_free(ours), freed_here = cuMemFree(theirs);
        printf("%zu bytes: allocated here, freed there: %d; the reverse: %d; again: %d\n", sizes[i], freed_there, freed_here,
               (int)cuMemFree(theirs));
    }
    printf("another block: wrong bytes %zu\n", wrong_on_device(kept, 0x5a, 3000));
    CU(cuMemFree(kept));
    if (device_is_ours())
        printf("all came back: %s\n", yes_no(available() >= before));
    return 0;
}
