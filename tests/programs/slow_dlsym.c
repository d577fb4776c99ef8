/*
 * Another preload that stands in front of dlsym, as profilers and tracers do. With SLOW_DLSYM=name it dwells on that name.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

void *dlsym(void *restrict handle, const char *restrict name) {
    static void *(*next)(void *, const char *);
    const char *slow = getenv("SLOW_DLSYM");
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);
    if (slow && strcmp(slow, name) == 0)
        usleep(200000);
    return next(handle, name);
}
