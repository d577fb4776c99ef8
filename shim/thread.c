/*
 * thread.c: see thread.h. Owns the list of what threads keep, which it guards, and sees threads end.
 */
#include "thread.h"

#include "context.h"
#include "lock.h"
#include "pages.h"

#include "backends/registry.h"

#include <pthread.h>

__thread struct cuplug_thread cuplug_self __attribute__((tls_model("initial-exec")));

static struct cuplug_lock lock;
static struct cuplug_slab slab = {.object_size = sizeof(struct cuplug_kept)};
static struct cuplug_kept *_Atomic all;

/* Weak, as they may be in a library of their own that is not there: then threads keep nothing. Not what C++ uses for thread_local objects, which takes
 * the loader's lock, and is also run by exit(), perhaps in the middle of something here. */
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
static pthread_key_t key; /* made under the lock */
static enum { NO_KEY_YET, KEY, NO_KEY } have_key;

/* Other destructors of the thread may still allocate and free; they do without. */
static void thread_ends(void *object) {
    struct cuplug_kept *kept = object;

    if (cuplug_self.kept != kept) /* a forked child's, which is its parent's */
        return;
    cuplug_self.kept = NULL;
    cuplug_self.ended = true;
    cuplug_backend_thread_ends(kept);
    cuplug_context_thread_ends(kept);
    cuplug_stats_settle(&kept->tally);
    cuplug_lock(&lock);
    kept->unused = true;
    cuplug_unlock(&lock);
}

static struct cuplug_kept *find_unused(void) {
    struct cuplug_kept *kept = NULL;

    cuplug_lock(&lock);
    if (have_key == NO_KEY_YET)
        have_key = pthread_key_create && pthread_setspecific && pthread_key_create(&key, thread_ends) == 0 ? KEY : NO_KEY;
    if (have_key == NO_KEY)
        goto out;
    for (kept = atomic_load_explicit(&all, memory_order_relaxed); kept && !kept->unused; kept = kept->next)
        ;
    if (kept) {
        kept->unused = false;
    } else if ((kept = cuplug_slab_take(&slab))) {
        kept->next = atomic_load_explicit(&all, memory_order_relaxed);
        atomic_store_explicit(&all, kept, memory_order_release);
    }
out:
    cuplug_unlock(&lock);
    return kept;
}

struct cuplug_kept *cuplug_kept_make(void) {
    struct cuplug_kept *kept = NULL;

    if (!cuplug_self.ended)
        kept = find_unused();
    cuplug_self.kept = kept;
    if (kept && pthread_setspecific(key, kept) != 0)
        thread_ends(kept);
    return cuplug_self.kept;
}

struct cuplug_kept *cuplug_kept_first(void) {
    return atomic_load_explicit(&all, memory_order_acquire);
}

void cuplug_kept_after_fork(bool used) {
    lock = (struct cuplug_lock){0};
    if (!used)
        return;
    cuplug_self.kept = NULL;
    cuplug_self.ended = true;
}
