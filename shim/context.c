/*
 * context.c: see context.h. list_lock guards the list; objects are only ever added. No driver call is made under it.
 */
#include "context.h"

#include "capture.h"
#include "core.h"
#include "lock.h"
#include "pages.h"

#include <sched.h>

_Atomic uint32_t cuplug_context_epoch = 1;

static struct cuplug_lock list_lock;
static struct cuplug_slab slab = {.object_size = sizeof(struct cuplug_context)};
static struct cuplug_context *_Atomic contexts; /* release when one is added; walked without the lock */
static _Atomic bool shared;
static _Atomic bool shared_done; /* and every block handed out behind a device wait is done waiting */
static _Atomic uint64_t last_id;

bool cuplug_context_shared(void) {
    return !cuplug_hooked || atomic_load(&shared); /* who does not see contexts come must expect more */
}

bool cuplug_context_any(void) {
    return atomic_load_explicit(&contexts, memory_order_acquire) != NULL;
}

struct cuplug_context *cuplug_context_find(CUcontext handle) {
    struct cuplug_context *context = atomic_load_explicit(&contexts, memory_order_acquire);

    while (context && (context->handle != handle || cuplug_context_gone(context)))
        context = context->next;
    return context;
}

static uint64_t id_of(CUcontext handle) {
    unsigned long long id = 0;

    return cuplug_real.cuCtxGetId(handle, &id) == CUDA_SUCCESS ? id : 0;
}

static void tell_shared(struct cuplug_context *context, void *arg) {
    (void)arg;
    cuplug_core_context_shared(context);
}

void cuplug_context_share(void) {
    atomic_store(&shared, true);
    cuplug_gate_close(); /* whoever is about to make a device wait has made it, or will see `shared` */
    cuplug_gate_open();
    cuplug_context_each(tell_shared, NULL);
    atomic_store(&shared_done, true);
}

static void count_context(struct cuplug_context *context, void *arg) {
    (void)context;
    ++*(int *)arg;
}

/* Puts `handle` into the list unless it is there; one that was a stranger until now is served from now on. */
static struct cuplug_context *add(CUcontext handle, uint64_t id, CUdevice device, enum cuplug_context_origin origin) {
    struct cuplug_context *context;
    int others = 0;

    cuplug_lock(&list_lock);
    context = cuplug_context_find(handle);
    cuplug_context_each(count_context, &others);
    if (origin && others && !(context && context->origin) && !atomic_load(&shared_done)) {
        cuplug_unlock(&list_lock);
        cuplug_context_share(); /* before the newcomer can touch a block of the others */
        cuplug_lock(&list_lock);
        context = cuplug_context_find(handle);
    }
    if (!context) {
        context = cuplug_slab_take(&slab);
        if (context) {
            context->handle = handle;
            context->id = id ? id : atomic_fetch_add(&last_id, 1) + 1;
            context->device = device;
            context->origin = origin;
            context->next = atomic_load_explicit(&contexts, memory_order_relaxed);
            atomic_store_explicit(&contexts, context, memory_order_release);
        }
    } else if (origin && !context->origin) {
        context->origin = origin;
    }
    cuplug_unlock(&list_lock);
    return context;
}

/* `captures`: the newest one that may be of this context and not of the next with its handle. */
static void lose(struct cuplug_context *context, uint64_t captures) {
    atomic_store(&context->gone, true);
    cuplug_capture_forget_context(context->handle, captures);
    cuplug_core_context_lost(context);
    atomic_fetch_add(&cuplug_context_epoch, 1);
}

/* A primary context keeps its handle through a reset, and the program need not retain it again. */
static struct cuplug_context *former_primary(CUcontext handle) {
    struct cuplug_context *context = atomic_load_explicit(&contexts, memory_order_acquire);

    while (context && (context->handle != handle || context->origin != CUPLUG_CONTEXT_PRIMARY))
        context = context->next;
    return context;
}

/* The driver tells the device of the current context only. */
static bool device_of(CUcontext handle, CUdevice *device) {
    CUcontext current = NULL;

    return cuplug_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == handle && cuplug_real.cuCtxGetDevice(device) == CUDA_SUCCESS;
}

struct cuplug_context *cuplug_context_look_up(CUcontext handle) {
    uint32_t epoch = atomic_load_explicit(&cuplug_context_epoch, memory_order_acquire);
    struct cuplug_context *context = cuplug_context_find(handle), *former;
    uint64_t id = id_of(handle);
    CUdevice device = 0;

    if (context && id && context->id != id) { /* it ended where we could not see, and its handle serves again */
        enum cuplug_context_origin origin = context->origin;

        device = context->device;
        lose(context, cuplug_capture_newest());
        context = add(handle, id, device, origin);
    }
    if (!context && (former = former_primary(handle)))
        context = add(handle, id, former->device, CUPLUG_CONTEXT_PRIMARY);
    else if (!context && device_of(handle, &device))
        context = add(handle, id, device, CUPLUG_CONTEXT_UNKNOWN);
    cuplug_self.handle = handle;
    cuplug_self.context = context;
    cuplug_self.context_epoch = epoch;
    return context;
}

struct cuplug_context *cuplug_context_appeared(CUcontext handle, CUdevice device, enum cuplug_context_origin origin) {
    struct cuplug_context *context = cuplug_context_find(handle);
    uint64_t id = context && context->origin && origin == CUPLUG_CONTEXT_PRIMARY ? 0 : id_of(handle);

    if (context && id && context->id != id) { /* another thread is destroying it, and the driver gave its handle away again */
        lose(context, cuplug_capture_newest());
        context = NULL;
    }
    return context && context->origin ? context : add(handle, id, device, origin);
}

void cuplug_context_ending(struct cuplug_context *context) {
    if (!context)
        return;
    atomic_fetch_add(&context->ending, 1); /* partner of the check in enter() */
    atomic_fetch_add(&cuplug_context_epoch, 1);
    while (atomic_load(&context->inside) > 0)
        sched_yield();
    atomic_store(&context->captures, cuplug_capture_newest());
}

struct cuplug_context *cuplug_context_primary(CUdevice device) {
    struct cuplug_context *context = atomic_load_explicit(&contexts, memory_order_acquire);

    while (context && (context->device != device || context->origin != CUPLUG_CONTEXT_PRIMARY || cuplug_context_gone(context)))
        context = context->next;
    return context;
}

void cuplug_context_ended(struct cuplug_context *context, bool ended) {
    if (!context)
        return;
    if (ended)
        lose(context, atomic_load(&context->captures));
    atomic_fetch_sub(&context->ending, 1);
    atomic_fetch_add(&cuplug_context_epoch, 1);
}

void cuplug_context_lost(struct cuplug_context *context) {
    lose(context, atomic_load(&context->captures));
}

bool cuplug_context_same(const struct cuplug_context *context) {
    uint64_t id = id_of(context->handle);

    return !id || id == context->id;
}

bool cuplug_context_settled(const struct cuplug_context *context) {
    while (atomic_load(&context->ending) && !cuplug_context_gone(context))
        sched_yield();
    return !cuplug_context_gone(context);
}

bool cuplug_context_enter(struct cuplug_context *context) {
    for (;;) {
        atomic_fetch_add(&context->inside, 1);
        if (cuplug_context_live(context))
            return true;
        atomic_fetch_sub(&context->inside, 1);
        if (!cuplug_context_settled(context))
            return false;
    }
}

void cuplug_context_leave(struct cuplug_context *context) {
    atomic_fetch_sub(&context->inside, 1);
}

bool cuplug_context_push(const struct cuplug_context *context) {
    return cuplug_real.cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
}

void cuplug_context_pop(void) {
    CUcontext popped;

    cuplug_real.cuCtxPopCurrent_v2(&popped);
}

CUresult cuplug_context_check(void) {
    size_t free, total;

    return cuplug_real.cuMemGetInfo_v2(&free, &total);
}

/* Those of which cuda.h says that any further work will return the same error, and those that the device's hardware or the MPS server makes of it. */
static bool lasts(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

CUresult cuplug_context_answered(struct cuplug_context *context, CUresult result) {
    if (context && lasts(result))
        atomic_store_explicit(&context->fault, (int)result, memory_order_relaxed);
    return result;
}

/* The legacy stream is there without being made. Not beside a capture, which it might spoil, nor where captures are not seen. Nor
 * in a library's call: that has entered the context, and to enter it again might wait for who ends it and waits for that call. */
void cuplug_context_look(struct cuplug_context *context) {
    if (cuplug_self.depth)
        return; /* another free asks */
    if (!cuplug_hooked || cuplug_exiting() || !cuplug_context_enter(context))
        return;
    if (cuplug_gate_enter()) {
        if (cuplug_context_push(context)) {
            atomic_store_explicit(&context->unasked, 0, memory_order_relaxed);
            cuplug_context_answered(context, cuplug_real.cuStreamQuery(CU_STREAM_LEGACY));
            cuplug_context_pop();
        }
        cuplug_gate_leave();
    }
    cuplug_context_leave(context);
}

void cuplug_context_count_frees(struct cuplug_context *context, unsigned frees) {
    if (frees && atomic_fetch_add_explicit(&context->unasked, frees, memory_order_relaxed) + frees >= 144) /* and 15 that a thread has not told */
        cuplug_context_look(context);
}

void cuplug_context_thread_ends(struct cuplug_kept *kept) {
    if (kept->freed_in)
        atomic_fetch_add_explicit(&kept->freed_in->unasked, kept->unasked, memory_order_relaxed);
    kept->freed_in = NULL;
    kept->unasked = 0;
}

void cuplug_context_each(void (*visit)(struct cuplug_context *context, void *arg), void *arg) {
    struct cuplug_context *context = atomic_load_explicit(&contexts, memory_order_acquire);

    for (; context; context = context->next)
        if (context->origin && !cuplug_context_gone(context))
            visit(context, arg);
}

void cuplug_context_after_fork(void) {
    list_lock = (struct cuplug_lock){0};
}
