/*
 * lock.h: a four-byte lock on a futex. All zero is unlocked, so it needs no constructor and a forked child can reset it by assignment.
 *
 * Lock order (take only downwards; none is ever held across a driver call, a plugin call or a call of the loader):
 *   init > real > call sites > context list > captures > spare pools, async's leftovers > what a thread keeps (magazine) > pool of a
 *   context, plugin > plugin's put-off frees, what is mapped for a context > what is left of ended ones > shard of the live table; last:
 *   the statistics, the list of threads, what only hands out objects
 */
#ifndef CUPLUG_LOCK_H
#define CUPLUG_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct cuplug_lock {
    _Atomic int state; /* 0 free, 1 held, 2 held and somebody sleeps */
};

/* Out of line, as all that is rare on the way of an allocation: there it would cost registers. */
static __attribute__((noinline, cold, unused)) void cuplug_lock_contended(struct cuplug_lock *lock) {
    int seen;

    for (int spin = 0; spin < 100; spin++) {
        seen = 0;
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&lock->state, &seen, 1, memory_order_acquire, memory_order_relaxed))
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline void cuplug_lock(struct cuplug_lock *lock) {
    int seen = 0;

    if (!atomic_compare_exchange_strong_explicit(&lock->state, &seen, 1, memory_order_acquire, memory_order_relaxed))
        cuplug_lock_contended(lock);
}

/* Tries for a while (some milliseconds). False: somebody else holds it still. */
static inline bool cuplug_lock_soon(struct cuplug_lock *lock) {
    for (int tries = 0; tries < 1000; tries++) {
        int seen = 0;

        if (atomic_compare_exchange_strong_explicit(&lock->state, &seen, 1, memory_order_acquire, memory_order_relaxed))
            return true;
        sched_yield();
    }
    return false;
}

static __attribute__((noinline, cold, unused)) void cuplug_lock_wake(struct cuplug_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void cuplug_unlock(struct cuplug_lock *lock) {
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        cuplug_lock_wake(lock);
}

/* The same for what every allocation and free takes, holds for a moment and hardly ever meets anybody at: to release it is a plain store, which saves a
 * locked instruction. So nobody is woken, and who waits naps in the end. */
struct cuplug_brief_lock {
    _Atomic bool held;
};

static __attribute__((noinline, cold, unused)) void cuplug_brief_lock_contended(struct cuplug_brief_lock *lock) {
    const struct timespec nap = {.tv_nsec = 20000};
    int saved = errno, tries = 0;

    while (atomic_load_explicit(&lock->held, memory_order_relaxed) || atomic_exchange_explicit(&lock->held, true, memory_order_acquire)) {
        if (++tries > 200)
            syscall(SYS_nanosleep, &nap, NULL); /* not nanosleep(), where the thread may be cancelled */
        else if (tries > 100)
            sched_yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    errno = saved;
}

static inline void cuplug_brief_lock(struct cuplug_brief_lock *lock) {
    if (atomic_exchange_explicit(&lock->held, true, memory_order_acquire))
        cuplug_brief_lock_contended(lock);
}

static inline bool cuplug_brief_lock_soon(struct cuplug_brief_lock *lock) {
    for (int tries = 0; tries < 1000; tries++) {
        if (!atomic_exchange_explicit(&lock->held, true, memory_order_acquire))
            return true;
        sched_yield();
    }
    return false;
}

static inline void cuplug_brief_unlock(struct cuplug_brief_lock *lock) {
    atomic_store_explicit(&lock->held, false, memory_order_release);
}

#endif
