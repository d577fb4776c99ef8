/*
 * plugin_later.c: driver calls of a library that were put off. A library that frees by cudaFree waits for all work of the context
 * in it. Called in the place of the program's own cudaFree that is as it was without us; called in an allocation, or for a
 * cudaFreeAsync, it might never return: the program may be about to launch what a kernel under way waits for. There the library's
 * cuMemFree is noted, and made in the program's next cudaFree, or when memory is short. Owns the list and its lock.
 */
#include "plugin.h"

#include "registry.h"
#include "shim/capture.h"
#include "shim/stats.h"

struct later {
    struct later *next;
    CUdeviceptr pointer;
    size_t size;
    struct cuplug_context *context;
};

static struct cuplug_lock lock;
static struct cuplug_slab slab = {.object_size = sizeof(struct later)};
static struct later *list;
static _Atomic size_t bytes[CUPLUG_STATS_DEVICES]; /* of the list; changed under the lock */

static _Atomic size_t *bytes_on(CUdevice device) {
    return &bytes[(unsigned)device % CUPLUG_STATS_DEVICES];
}

/* False without memory for it. */
static bool put_off(struct later later) {
    struct later *kept;

    cuplug_lock(&lock);
    kept = cuplug_slab_take(&slab);
    if (kept) {
        *kept = later;
        kept->next = list;
        list = kept;
        atomic_fetch_add(bytes_on(later.context->device), later.size);
    }
    cuplug_unlock(&lock);
    return kept != NULL;
}

CUresult cuplug_plugin_free_later(CUdeviceptr pointer) {
    struct cuplug_context *context = cuplug_context_current();
    CUdeviceptr base = 0;
    size_t size = 0;

    if (!context || cuplug_real.cuMemGetAddressRange_v2(&base, &size, pointer) != CUDA_SUCCESS || base != pointer)
        return cuplug_real.cuMemFree_v2(pointer); /* the driver says what is wrong */
    return put_off((struct later){.pointer = pointer, .size = size, .context = context}) ? CUDA_SUCCESS : cuplug_real.cuMemFree_v2(pointer);
}

static bool take(CUdevice device, const struct cuplug_context *context, struct later *taken) {
    struct later **link = &list, *later;

    cuplug_lock(&lock);
    while (*link && (context ? (*link)->context != context : (*link)->context->device != device))
        link = &(*link)->next;
    later = *link;
    if (later) {
        *taken = *later;
        *link = later->next;
        atomic_fetch_sub(bytes_on(later->context->device), later->size);
        cuplug_slab_give(&slab, later);
    }
    cuplug_unlock(&lock);
    return later != NULL;
}

size_t cuplug_plugin_free_now(CUdevice device, const struct cuplug_context *context) {
    CUstreamCaptureMode mode;
    struct later later;
    size_t freed = 0;
    bool done;

    while (cuplug_plugin_put_off(device) && !cuplug_capturing() && !cuplug_exiting() && take(device, context, &later)) {
        if (!cuplug_context_enter(later.context)) /* gone, and the memory too */
            continue;
        mode = cuplug_capture_relax();
        if ((done = cuplug_context_push(later.context))) {
            done = cuplug_context_answered(later.context, cuplug_real.cuMemFree_v2(later.pointer)) == CUDA_SUCCESS;
            cuplug_context_pop();
        }
        cuplug_capture_restore(mode);
        if (!done) /* another time */
            put_off(later);
        cuplug_context_leave(later.context);
        if (!done)
            break;
        freed += later.size;
    }
    return freed;
}

size_t cuplug_plugin_put_off(CUdevice device) {
    return atomic_load(bytes_on(device));
}

bool cuplug_plugin_put_off_holds(CUdeviceptr pointer) {
    struct later *later;

    cuplug_lock(&lock);
    later = list;
    while (later && pointer - later->pointer >= later->size)
        later = later->next;
    cuplug_unlock(&lock);
    return later != NULL;
}

void cuplug_plugin_put_off_lost(const struct cuplug_context *context) {
    cuplug_lock(&lock);
    for (struct later **link = &list; *link;) {
        struct later *later = *link;

        if (later->context != context) {
            link = &later->next;
            continue;
        }
        *link = later->next;
        atomic_fetch_sub(bytes_on(later->context->device), later->size);
        cuplug_slab_give(&slab, later);
    }
    cuplug_unlock(&lock);
}
