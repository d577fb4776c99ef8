/*
 * runtime_find.c: see runtime_find.h. Owns the table of call sites, insert-only and read without a lock; site_lock guards insertion. What it
 * remembers is dropped whenever any library has been unloaded since.
 */
#include "runtime_find.h"

#include "lock.h"
#include "lookup.h"
#include "next.h"
#include "pages.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#pragma weak dladdr1 /* next.c says why */

enum { SITES = 1024 };

struct site {
    _Atomic uintptr_t caller; /* release after runtime, acquire before it */
    const struct cuplug_runtime *_Atomic runtime; /* release after the slot was emptied, acquire in between */
};

struct known {
    struct cuplug_runtime runtime;
    struct known *next;
};

static struct cuplug_lock site_lock;
static struct site sites[SITES];
static int site_count;
static struct known *_Atomic known;
static bool refused; /* a forked child, whose parent used CUDA */
static struct cuplug_slab slab = {.object_size = sizeof(struct known)};
static _Atomic unsigned long long unloads_seen;

/* The C library does not free the lock of the loader's list in a forked child, nor a sanitizer that of its own dlopen. A fork
 * therefore waits until no thread of ours is in the loader, and while it is under way none goes there: natively cudaMalloc takes
 * no such lock, and the child's next dlopen would hang. Both seq_cst: walking is raised before forking is read, forking is raised
 * before walking is read, so one of the two sees the other. */
static _Atomic int walking, forking;
enum { FORK_WAITS_US = 100, FORK_WAITS = 1000 }; /* not for ever: the walk may itself wait for something that forks */

static int read_unloads(struct dl_phdr_info *info, size_t size, void *unloads) {
    (void)size;
    *(unsigned long long *)unloads = info->dlpi_subs;
    return 1;
}

bool cuplug_runtime_loader_enter(void) {
    atomic_fetch_add(&walking, 1);
    if (atomic_load(&forking) == 0)
        return true;
    atomic_fetch_sub(&walking, 1);
    return false;
}

static void pause_for_fork(void) {
    const struct timespec pause = {.tv_nsec = FORK_WAITS_US * 1000};

    nanosleep(&pause, NULL);
}

/* For what cannot be left out: waits for a fork that is under way, unless this is called in the midst of it. */
static bool loader_enter_later(void) {
    for (int i = 0; i < FORK_WAITS; i++) {
        if (cuplug_runtime_loader_enter())
            return true;
        pause_for_fork();
    }
    return false;
}

void cuplug_runtime_loader_leave(void) {
    atomic_fetch_sub(&walking, 1);
}

static void walk(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg) {
    if (!cuplug_runtime_loader_enter())
        return;
    dl_iterate_phdr(visit, arg);
    cuplug_runtime_loader_leave();
}

static unsigned long long unloads(void) {
    unsigned long long count = atomic_load_explicit(&unloads_seen, memory_order_relaxed);

    walk(read_unloads, &count);
    return count;
}

static struct site *slot_of(uintptr_t caller) {
    unsigned i = (unsigned)((caller * 0x9e3779b97f4a7c15u) >> 54); /* the top ten bits: SITES */
    uintptr_t there;

    while ((there = atomic_load_explicit(&sites[i].caller, memory_order_acquire)) && there != caller)
        i = (i + 1) % SITES;
    return &sites[i];
}

/* What `site` knows of `caller`, NULL if nothing. The slot may be emptied and given to another call site meanwhile, so it is looked at again. */
static const struct cuplug_runtime *remembered(const struct site *site, uintptr_t caller) {
    const struct cuplug_runtime *runtime;

    if (atomic_load_explicit(&site->caller, memory_order_acquire) != caller)
        return NULL;
    runtime = atomic_load_explicit(&site->runtime, memory_order_acquire);
    return atomic_load_explicit(&site->caller, memory_order_relaxed) == caller ? runtime : NULL;
}

static void *symbol(void *handle, const char *name) {
    return cuplug_lookup_real_dlsym()(handle, name);
}

/* Is that a function of this library, or of another copy of it? */
static bool is_ours(void *address) {
    Dl_info object;
    void *handle;
    bool copy;

    if (cuplug_same_object(address, sites))
        return true;
    handle = dladdr(address, &object) ? dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    copy = handle && symbol(handle, CUPLUG_MARK);
    if (handle)
        dlclose(handle);
    return copy;
}

/* Fills *runtime from what `handle` reaches. */
static bool fill(struct cuplug_runtime *runtime, void *handle) {
    cudaError_t (*get_version)(int *) = symbol(handle, "cudaRuntimeGetVersion");

    *runtime = (struct cuplug_runtime){
        .cudaMalloc = symbol(handle, "cudaMalloc"),
        .cudaFree = symbol(handle, "cudaFree"),
        .cudaMallocAsync = symbol(handle, "cudaMallocAsync"),
        .cudaMallocAsync_ptsz = symbol(handle, "cudaMallocAsync_ptsz"),
        .cudaFreeAsync = symbol(handle, "cudaFreeAsync"),
        .cudaFreeAsync_ptsz = symbol(handle, "cudaFreeAsync_ptsz"),
    };
    if (get_version)
        get_version(&runtime->version);
    return runtime->cudaMalloc && !is_ours(runtime->cudaMalloc);
}

static bool fill_from(struct cuplug_runtime *runtime, const char *path) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    bool found = handle && fill(runtime, handle);

    if (handle)
        dlclose(handle); /* the caller keeps its runtime loaded */
    return found;
}

static int fill_from_any(struct dl_phdr_info *info, size_t size, void *path) {
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libcudart.so"))
        return 0;
    *(const char **)path = info->dlpi_name;
    return 1;
}

/* The loader has been entered. */
static bool look_up_now(struct cuplug_runtime *runtime, const void *caller) {
    const char *path = NULL;
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1 && dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name && *map->l_name && fill_from(runtime, map->l_name))
        return true;
    if (fill(runtime, RTLD_NEXT))
        return true;
    dl_iterate_phdr(fill_from_any, &path); /* a tail call hid the caller */
    return path && fill_from(runtime, path);
}

static bool look_up(struct cuplug_runtime *runtime, const void *caller) {
    bool entered = loader_enter_later(), found = look_up_now(runtime, caller);

    if (entered)
        cuplug_runtime_loader_leave();
    return found;
}

/* The permanent copy of `runtime`. The lock is held. */
static const struct cuplug_runtime *keep(const struct cuplug_runtime *runtime) {
    struct known *one = known;

    while (one && memcmp(&one->runtime, runtime, sizeof *runtime) != 0)
        one = one->next;
    if (!one && (one = cuplug_slab_take(&slab))) {
        memcpy(&one->runtime, runtime, sizeof *runtime);
        one->next = known;
        atomic_store_explicit(&known, one, memory_order_release); /* read without the lock by refusing() */
    }
    return one ? &one->runtime : NULL;
}

/* Where every call will be refused: a runtime that can say so, if need be not the caller's, without a look into the loader, whose
 * locks may be held by threads that are not there. */
static const struct cuplug_runtime *refusing(const struct cuplug_runtime *remembered) {
    const struct known *one = atomic_load_explicit(&known, memory_order_acquire);

    return remembered ? remembered : one ? &one->runtime : NULL;
}

const struct cuplug_runtime *cuplug_runtime_find(const void *caller, bool call) {
    struct cuplug_runtime runtime;
    struct site *site = slot_of((uintptr_t)caller);
    const struct cuplug_runtime *kept = remembered(site, (uintptr_t)caller), *able = refused ? refusing(kept) : NULL;
    unsigned long long gone = call && !able ? unloads() : 0;

    if (able)
        return able;
    if (kept && (!call || gone == atomic_load_explicit(&unloads_seen, memory_order_relaxed)))
        return kept;
    if (!call)
        return NULL;
    memset(&runtime, 0, sizeof runtime); /* padding too: keep() compares bytes */
    if (!look_up(&runtime, caller))
        return NULL;
    cuplug_lock(&site_lock);
    kept = keep(&runtime);
    if (gone != atomic_load_explicit(&unloads_seen, memory_order_relaxed)) {
        for (int i = 0; i < SITES; i++)
            atomic_store_explicit(&sites[i].caller, 0, memory_order_relaxed);
        site_count = 0;
        atomic_store_explicit(&unloads_seen, gone, memory_order_relaxed);
    }
    if (kept && site_count < SITES / 2) {
        site = slot_of((uintptr_t)caller);
        site_count += atomic_load_explicit(&site->caller, memory_order_relaxed) == 0;
        atomic_store_explicit(&site->runtime, kept, memory_order_release); /* after the emptying above: remembered() */
        atomic_store_explicit(&site->caller, (uintptr_t)caller, memory_order_release);
    }
    cuplug_unlock(&site_lock);
    return kept;
}

void cuplug_runtime_before_fork(void) {
    atomic_fetch_add(&forking, 1);
    for (int i = 0; i < FORK_WAITS && atomic_load(&walking) > 0; i++)
        pause_for_fork();
}

void cuplug_runtime_forked(void) {
    atomic_fetch_sub(&forking, 1);
}

void cuplug_runtime_after_fork(bool refuses) {
    refused = refuses;
    site_lock = (struct cuplug_lock){0};
    atomic_store(&forking, atomic_load(&walking)); /* a walk that was not waited for: its lock will never be free, walk no more */
    atomic_store(&walking, 0);
}
