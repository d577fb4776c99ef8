/*
 * lock.h: a four-byte lock on a futex. All zero is unlocked, so it needs no constructor and a forked child can reset it by assignment.
 *
 * Lock order (take only downwards; none is ever held across a driver call, a plugin call or a call of the loader):
 *   init > real > call sites > context list > captures > spare pools > what a thread keeps (magazine) > pool of a context, plugin > plugin's put-off
 *   frees > shard of the live table; last: the statistics, the list of threads, what only hands out objects
 */
#ifndef CUPLUG_LOCK_H
#define CUPLUG_LOCK_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
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

#endif
