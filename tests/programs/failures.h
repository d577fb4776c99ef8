/*
 * For programs that let each driver call fail in turn. What is under test runs once untouched, to see which calls of the
 * simulated driver it makes (its own, the runtime's, the shim's), and then again for each of them: with the first, the second …
 * call of it failing, and with all of them, as out of memory, as a fault that lasts, and as two errors that mean less.
 */
#ifndef CUPLUG_TEST_FAILURES_H
#define CUPLUG_TEST_FAILURES_H

#include "program.h"
#include "shim/cuplug.h"
#include <dlfcn.h>

#define MOST_IN_TURN 5 /* calls of one name that fail one by one */

static struct {
    void (*fail)(const char *items);
    const char *(*calls)(int number, unsigned long *calls);
    size_t (*used)(int device);
} sim;

static int wrong;

static void find_simulated_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) {
        *(void **)&sim.fail = dlsym(driver, "simcuda_fail");
        *(void **)&sim.calls = dlsym(driver, "simcuda_calls");
        *(void **)&sim.used = dlsym(driver, "simcuda_used");
    }
    if (!sim.fail || !sim.calls || !sim.used)
        skip("needs the simulated driver");
}

/* A figure of the shim's; -1 without it. */
static long long figure(const char *name) {
    long long value = -1;
    return cuplug_get_stat && cuplug_get_stat(name, -1, &value) == 0 ? value : -1;
}

static inline bool serves(const char *backend) {
    const char *name = cuplug_get_backend ? cuplug_get_backend() : NULL;
    return name && strcmp(name, backend) == 0;
}

static const char *failing; /* what is made to fail now, for messages */

static void __attribute__((format(printf, 2, 3))) expect(bool fine, const char *format, ...) {
    va_list args;
    if (fine)
        return;
    wrong++;
    va_start(args, format);
    if (wrong <= 20) {
        printf("with %s: ", failing);
        vprintf(format, args);
        putchar('\n');
    }
    va_end(args);
}

#define MOST_ROWS 1024
static unsigned long made[MOST_ROWS]; /* calls between begin and end, by export */

/* Around the part in which the item fails; without one its calls are counted. */
static void begin(const char *item) {
    sim.fail(item);
    for (int i = 0; i < MOST_ROWS && sim.calls(i, &made[i]); i++)
        ;
}

static void end(void) {
    unsigned long now;
    sim.fail(NULL);
    for (int i = 0; i < MOST_ROWS && sim.calls(i, &now); i++)
        made[i] = now - made[i];
}

/* Calls run(item, arg) for every failure, `item` as in SIMCUDA_FAIL; first without one. Returns how many there were. */
static int with_each_failure(void (*run)(const char *item, void *arg), void *arg) {
    static const int codes[] = {1, 2, 700, 801};
    unsigned long usual[MOST_ROWS], calls;
    int failures = 0;
    const char *name;
    char item[128];
    failing = "nothing failing";
    run(NULL, arg);
    memcpy(usual, made, sizeof usual);
    for (int i = 0; i < MOST_ROWS && (name = sim.calls(i, &calls)); i++) {
        for (unsigned long n = 0; n <= usual[i] && n <= MOST_IN_TURN && usual[i]; n++) {
            for (size_t c = 0; c < COUNT_OF(codes); c++) {
                if (n)
                    snprintf(item, sizeof item, "%s:%lu=%d", name, n, codes[c]);
                else
                    snprintf(item, sizeof item, "%s:1-=%d", name, codes[c]);
                failing = item;
                run(item, arg);
                failures++;
            }
        }
    }
    return failures;
}

static inline size_t resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total = 0, resident = 0;
    if (file && fscanf(file, "%zu %zu", &total, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

#endif
