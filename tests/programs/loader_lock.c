/*
 * One thread makes the process's first CUDA look-up while another is inside dlopen, in a constructor that makes one too, under the loader's lock. Argument:
 * the library constructor.so. Behind slow_dlsym.so the first thread is caught in the middle of its look-up for certain.
 */
#include "program.h"
#include <dlfcn.h>

static void *driver;

static void *look_up(void *argument) {
    (void)argument;
    return dlsym(driver, "cuMemAlloc_v2");
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *found;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || argc < 2)
        die("%s", argc < 2 ? "which library?" : dlerror());
    start_thread(&thread, look_up, NULL);
    sleep_ms(30);
    if (!dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))
        die("%s", dlerror());
    pthread_join(thread, &found);
    printf("found by the thread: %s\n", yes_no(found != NULL));
    return 0;
}
