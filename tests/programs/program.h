/*
 * What every test program shares: time, threads and the way results are printed.
 *
 * A program prints what a user would see and nothing that changes from run to run (no addresses, no times), so that its output
 * with the shim can be compared with its output without. It says "skip: why" and exits 0 where the machine lacks what it needs.
 */
#ifndef CUPLUG_TEST_PROGRAM_H
#define CUPLUG_TEST_PROGRAM_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
/* Under gcc's or clang's address or thread sanitizer, which forbid RTLD_DEEPBIND. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How long a pretended kernel runs: long enough for the host to be far ahead of it. */
#define KERNEL_MS 40

static inline double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

static inline void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fflush(stdout);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(1);
}

static inline void __attribute__((noreturn)) skip(const char *why) {
    printf("skip: %s\n", why);
    exit(0);
}

/* On the GPU other processes run beside the tests, so what the device has free says nothing about one of them. */
static inline bool device_is_ours(void) {
    const char *driver = getenv("CUPLUG_TEST_DRIVER");
    return !driver || strcmp(driver, "gpu") != 0;
}

static inline const char *yes_no(bool answer) {
    return answer ? "yes" : "no";
}

/* xorshift: the same numbers on every machine, one state per thread. */
static inline uint32_t next_random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* How many of the bytes differ from the expected one. Nearly always none, and looking at each one takes seconds in a sanitizer. */
static inline size_t wrong_bytes(const void *memory, int expected, size_t size) {
    const unsigned char *bytes = memory;
    size_t wrong = 0;
    if (size && bytes[0] == (unsigned char)expected && memcmp(bytes, bytes + 1, size - 1) == 0)
        return 0;
    for (size_t i = 0; i < size; i++)
        wrong += bytes[i] != (unsigned char)expected;
    return wrong;
}

static inline void start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
    if (pthread_create(thread, NULL, body, argument) != 0)
        die("no thread");
}

#endif
