/*
 * One thread is held inside a driver call until another thread's own allocation or free has returned. Whoever holds a lock across
 * driver calls never ends (the fake driver gives up after 3 s and says so). Argument: alloc, free or trim, with FAKE_BLOCK set to
 * the driver call that blocks (trim: cuMemFree_v2, and memory so small that the allocation must give freed blocks back first).
 */
#include "driver.h"
#include <dlfcn.h>

static int (*blocked)(void), (*timeouts)(void);
static void (*release)(void);
static CUdeviceptr spare;

static void *other_thread(void *unused) {
    CUdeviceptr memory;
    (void)unused;
    double end = now_ms() + 500;
    while (!blocked() && now_ms() < end)
        sleep_ms(1);
    CU(cuMemFree(spare));
    if (cuMemAlloc(&memory, 256) == CUDA_SUCCESS) {
        /* Kept: giving it back is a question of its own. */
    }
    release();
    return NULL;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "alloc";
    const char *block = getenv("FAKE_BLOCK");
    CUdeviceptr memory[8], large;
    pthread_t thread;
    use_primary(0);
    blocked = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_blocked");
    timeouts = (int (*)(void))dlsym(RTLD_DEFAULT, "fake_timeouts");
    release = (void (*)(void))dlsym(RTLD_DEFAULT, "fake_release");
    if (!blocked || !timeouts || !release || !block)
        die("needs the fake driver");
    /* What comes before the meeting must not block. */
    char *when = strdup(block);
    unsetenv("FAKE_BLOCK");
    CU(cuMemAlloc(&spare, 256));
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        CU(cuMemAlloc(&memory[i], 6 * MIB));
    if (strcmp(what, "trim") == 0)
        for (size_t i = 0; i < COUNT_OF(memory); i++)
            CU(cuMemFree(memory[i]));
    setenv("FAKE_BLOCK", when, 1);
    free(when);
    start_thread(&thread, other_thread, NULL);
    if (strcmp(what, "free") == 0)
        CU(cuMemFree(memory[0]));
    else
        CU(cuMemAlloc(&large, strcmp(what, "trim") == 0 ? 40 * MIB : 9 * MIB));
    pthread_join(thread, NULL);
    printf("held in the driver: %s\n", yes_no(blocked()));
    printf("gave up waiting: %d\n", timeouts());
    return 0;
}
