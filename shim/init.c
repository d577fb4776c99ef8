/*
 * init.c: see init.h. Guards the first reading of the options with init_lock, under which neither the loader nor the program's code is called (real.c
 * says why); knows about fork and exit.
 */
#include "init.h"

#include "capture.h"
#include "config/options.h"
#include "context.h"
#include "core.h"
#include "explain.h"
#include "live.h"
#include "lock.h"
#include "lookup.h"
#include "next.h"
#include "runtime_find.h"
#include "stats.h"

#include <dlfcn.h>

/* What pthread_atfork calls in glibc. Weak: next.c says why. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));
/* What atexit calls. With NULL for the library the handler is not run with the library's own destructors, but when its turn among
 * all comes. */
extern int __cxa_atexit(void (*handler)(void *), void *argument, void *library);

_Atomic enum cuplug_state cuplug_state = CUPLUG_UNKNOWN;

bool cuplug_hooked;

static struct cuplug_lock init_lock;
static bool options_read;
static _Atomic bool fork_watched, end_watched, unfollowed, exiting, one_end;

/* A child of a process that used the driver cannot use it: every call goes to the driver, which says so. Any other child starts afresh; locks may
 * have been held by threads that it does not have. */
static void after_fork_in_child(void) {
    init_lock = (struct cuplug_lock){0};
    cuplug_real_after_fork();
    cuplug_runtime_after_fork(cuplug_context_any());
    cuplug_stats_after_fork();
    cuplug_kept_after_fork(cuplug_context_any());
    if (cuplug_context_any()) {
        atomic_store(&cuplug_state, CUPLUG_OFF);
        return;
    }
    cuplug_context_after_fork();
    cuplug_capture_after_fork();
    cuplug_live_reset();
}

/* Does another copy of this library come first? Then it does all the work. */
static bool second_copy(void) {
    void *first = cuplug_lookup_real_dlsym()(RTLD_DEFAULT, CUPLUG_MARK);

    return first && !cuplug_same_object(first, &init_lock);
}

/* The lock is held. */
static void read_options(void) {
    if (options_read)
        return;
    options_read = true;
    cuplug_options_read();
    if (!cuplug_options.disable)
        cuplug_core_init();
}

void cuplug_init_options(void) {
    cuplug_lock(&init_lock);
    read_options();
    cuplug_unlock(&init_lock);
}

/* Exit handlers run in the reverse order of their registration. This one is registered when a program looks its driver up, so
 * before the driver is started and registers its own; and before a program that is linked to the driver makes its first context.
 */
static void driver_ended(void *unused) {
    enum cuplug_state on = CUPLUG_ON;

    (void)unused;
    atomic_store(&exiting, true);
    atomic_compare_exchange_strong(&cuplug_state, &on, CUPLUG_OVER);
}

bool cuplug_init_lookup(void) {
    enum cuplug_state state = atomic_load_explicit(&cuplug_state, memory_order_acquire);
    bool second, hooked;

    if (state != CUPLUG_UNKNOWN)
        return state == CUPLUG_ON;
    if (!cuplug_real_load()) /* no driver yet: perhaps later */
        return false;
    second = second_copy();
    hooked = cuplug_before_libc();
    if (!atomic_exchange(&fork_watched, true) && __register_atfork &&
        __register_atfork(cuplug_runtime_before_fork, cuplug_runtime_forked, after_fork_in_child, __dso_handle) != 0)
        atomic_store(&fork_watched, false);
    if (!atomic_exchange(&end_watched, true))
        __cxa_atexit(driver_ended, NULL, NULL);
    cuplug_lock(&init_lock);
    state = atomic_load_explicit(&cuplug_state, memory_order_relaxed);
    if (state == CUPLUG_UNKNOWN) {
        cuplug_hooked = hooked;
        read_options();
        state = cuplug_options.disable || second ? CUPLUG_OFF : CUPLUG_ON;
        atomic_store_explicit(&cuplug_state, state, memory_order_release);
    }
    cuplug_unlock(&init_lock);
    if (!cuplug_options.follow && !atomic_exchange(&unfollowed, true))
        cuplug_options_unfollow();
    return state == CUPLUG_ON;
}

bool cuplug_exiting(void) {
    return atomic_load_explicit(&exiting, memory_order_relaxed);
}

/* The report is written at the later of two moments, so that what is freed in exit handlers and destructors counts. */
static void ends(void) {
    enum cuplug_state state = atomic_load_explicit(&cuplug_state, memory_order_acquire);

    if (atomic_exchange(&one_end, true) && (state == CUPLUG_ON || state == CUPLUG_OVER))
        cuplug_report_write();
}

/* The process ends by return or exit, and the libraries' destructors run; a preload's first. */
__attribute__((destructor)) static void destructors(void) {
    atomic_store(&exiting, true);
    cuplug_explain();
    ends();
}

/* When they all have run, if registered so early. In a library opened by dlopen: before them. */
static void last_handler(void *unused) {
    (void)unused;
    ends();
}

/* Before the C library registers the running of the destructors. A preload may do nothing else here. */
__attribute__((constructor)) static void register_last(void) {
    __cxa_atexit(last_handler, NULL, NULL);
}
