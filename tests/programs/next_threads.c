/*
 * Eight threads look the same names up again and again (RTLD_NEXT, RTLD_DEFAULT, a handle): every answer is the first one.
 */
#include "program.h"
#include <dlfcn.h>

#define THREADS 8
#define ROUNDS 5000

static void *first_next, *first_default, *first_handle, *self;
static unsigned different;

static void *look(void *unused) {
    (void)unused;
    unsigned wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        wrong += dlsym(RTLD_NEXT, "open") != first_next;
        wrong += dlsym(RTLD_DEFAULT, "open") != first_default;
        wrong += dlsym(self, "main") != first_handle;
        wrong += dlsym(RTLD_NEXT, "cuplug_no_such_symbol") != NULL;
    }
    __atomic_fetch_add(&different, wrong, __ATOMIC_RELAXED);
    return NULL;
}

static const char *origin(void *address) {
    Dl_info info;
    const char *slash;
    if (!address || !dladdr(address, &info))
        return "nowhere";
    slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

int main(void) {
    pthread_t threads[THREADS];
    self = dlopen(NULL, RTLD_NOW);
    first_next = dlsym(RTLD_NEXT, "open");
    first_default = dlsym(RTLD_DEFAULT, "open");
    first_handle = dlsym(self, "main");
    for (int i = 0; i < THREADS; i++)
        start_thread(&threads[i], look, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("open comes from %s and %s, main is %s; different answers: %u\n", origin(first_next), origin(first_default),
           first_handle ? "found" : "not exported", different);
    return 0;
}
