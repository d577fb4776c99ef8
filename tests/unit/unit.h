/*
 * unit.h: the little that the unit tests share: a check that says where it failed, and a line "ok NAME" or "not ok NAME" a test.
 */
#ifndef CUPLUG_UNIT_H
#define CUPLUG_UNIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

static bool unit_failed;

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition) && !unit_failed) {                                                                                                \
            unit_failed = true;                                                                                                            \
            printf("# %s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                                             \
        }                                                                                                                                  \
    } while (0)

#define RUN(test)                                                                                                                          \
    do {                                                                                                                                   \
        unit_failed = false;                                                                                                               \
        test();                                                                                                                            \
        printf("%s %s\n", unit_failed ? "not ok" : "ok", #test);                                                                           \
        fflush(stdout);                                                                                                                    \
    } while (0)

/* A reproducible stream of random numbers (splitmix64). */
static inline uint64_t unit_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
