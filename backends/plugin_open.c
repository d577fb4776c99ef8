/*
 * plugin_open.c: opens the library and calls it. Either it exports cuplug_backend_open (backends/cuplug_backend.h), or a pair of
 * functions in PyTorch's form, around which a table of operations is put here. Opened at the first allocation rather than with
 * the options, as no lock of ours may be held: its constructors are the program's code.
 */
#include "plugin.h"

#include "config/options.h"
#include "config/table.h"
#include "shim/capture.h"
#include "shim/guard.h"
#include "shim/log.h"
#include "shim/lookup.h"
#include "shim/next.h"
#include "shim/stats.h"

#include "registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum state { UNOPENED, OPENING, READY, FAILED };
enum { OPENING_WAITS = 2000 }; /* ms */

struct cuplug_backend_ops cuplug_plugin_ops;
void *cuplug_plugin_self;
bool cuplug_plugin_pair;

static _Atomic enum state state; /* READY: release, after everything above was written; acquire in opened() and ready() */
static const char *named;        /* the value of CUPLUG_BACKEND */

/* --- Calls */

struct call {
    const struct cuplug_request *request; /* of an alloc, … */
    struct cuplug_block *block;
    const struct cuplug_block *freed; /* … of a free, … */
    const struct cuplug_release *release;
    const struct cuplug_backend_ops *table; /* … of open, … */
    const char *options;
    void *self;
    CUdevice device; /* … or of trim */
    struct cuplug_context *context;
    size_t bytes;
    CUresult result;
};

static void do_alloc(void *argument) {
    struct call *call = argument;

    call->result = cuplug_plugin_ops.alloc(cuplug_plugin_self, call->request, call->block);
}

static void do_free(void *argument) {
    struct call *call = argument;

    call->result = cuplug_plugin_ops.free(cuplug_plugin_self, call->freed, call->release);
}

static void do_open(void *argument) {
    struct call *call = argument;

    call->result = call->table->open(call->options, &call->self);
}

static void do_trim(void *argument) {
    struct call *call = argument;

    call->bytes = cuplug_plugin_ops.trim(cuplug_plugin_self, call->device, call->context);
}

/* The library's CUDA calls pass to the driver meanwhile, and what it learns of the runtime is not this thread's. */
static bool guarded(void (*body)(void *), struct call *call, bool may_wait, char *what, size_t room) {
    bool entered = cuplug_self.entered, hurried = cuplug_self.hurried, fine;
    int saved = errno;

    cuplug_self.depth++;
    cuplug_self.hurried = !may_wait;
    fine = cuplug_guard(body, call, what, room);
    cuplug_self.hurried = hurried;
    cuplug_self.depth--;
    cuplug_self.entered = entered;
    errno = saved;
    return fine;
}

CUresult cuplug_plugin_call_alloc(const struct cuplug_request *request, struct cuplug_block *block) {
    struct call call = {.request = request, .block = block};
    char what[160];

    if (!cuplug_context_push(request->context)) /* whatever the library makes current is so no longer after the pop */
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!guarded(do_alloc, &call, true, what, sizeof what)) {
        call.result = CUDA_ERROR_OUT_OF_MEMORY;
        cuplug_plugin_complain(CUPLUG_PLUGIN_THREW, "an allocation of %zu bytes threw %s; taken for out of memory", request->size,
                               what);
    }
    cuplug_context_pop();
    return call.result;
}

CUresult cuplug_plugin_call_free(const struct cuplug_block *block, const struct cuplug_release *release, bool may_wait) {
    struct call call = {.freed = block, .release = release};
    char what[160];
    bool pushed = cuplug_context_push(block->context);

    if (!guarded(do_free, &call, may_wait, what, sizeof what)) {
        call.result = CUDA_SUCCESS;
        cuplug_plugin_complain(CUPLUG_PLUGIN_THREW, "a free of %zu bytes threw %s; taken for done", block->size, what);
    }
    if (pushed)
        cuplug_context_pop();
    return call.result;
}

struct trim {
    CUdevice device;
    size_t bytes;
};

static void trim_context(struct cuplug_context *context, void *arg) {
    struct trim *trim = arg;
    struct call call = {.device = trim->device, .context = context};
    char what[160];

    if (context->device != trim->device || !cuplug_context_enter(context))
        return;
    if (cuplug_context_push(context)) {
        if (guarded(do_trim, &call, true, what, sizeof what))
            trim->bytes += call.bytes;
        else
            cuplug_plugin_complain(CUPLUG_PLUGIN_THREW, "its trim threw %s", what);
        cuplug_context_pop();
    }
    cuplug_context_leave(context);
}

size_t cuplug_plugin_call_trim(CUdevice device) {
    struct trim trim = {.device = device};

    if (!cuplug_capturing() && CUPLUG_PLUGIN_HAS(trim)) /* its cudaFree would spoil the capture */
        cuplug_context_each(trim_context, &trim);
    return trim.bytes;
}

void cuplug_plugin_complain(enum cuplug_plugin_fault fault, const char *format, ...) {
    static _Atomic unsigned said; /* a bit for each fault */
    char what[400];
    va_list list;

    if (atomic_fetch_or_explicit(&said, 1u << fault, memory_order_relaxed) & 1u << fault)
        return;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    cuplug_log(CUPLUG_LOG_ERROR, "%s: %s (said once)", named, what);
}

/* --- A pair of functions */

typedef void *pair_alloc_fn(size_t size, int device, CUstream stream);

static pair_alloc_fn *pair_malloc;
static void *pair_release;

/* PyTorch's name for the default stream is 0. */
static CUstream pair_stream(CUstream stream) {
    return stream == CU_STREAM_LEGACY ? NULL : stream;
}

static CUresult pair_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    (void)self;
    block->pointer = (CUdeviceptr)pair_malloc(request->size, request->device, pair_stream(request->stream));
    return block->pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pair_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    enum { ALL, SIZE_STREAM, SIZE_DEVICE, SIZE, STREAM, POINTER }; /* as options.def lists them */
    void *pointer = (void *)block->pointer;
    CUstream stream = pair_stream(block->stream);

    (void)self, (void)release;
    switch (cuplug_plugin_options.free_args) {
    case ALL:
        ((void (*)(void *, size_t, int, CUstream))pair_release)(pointer, block->size, block->device, stream);
        break;
    case SIZE_STREAM:
        ((void (*)(void *, size_t, CUstream))pair_release)(pointer, block->size, stream);
        break;
    case SIZE_DEVICE:
        ((void (*)(void *, size_t, int))pair_release)(pointer, block->size, block->device);
        break;
    case SIZE:
        ((void (*)(void *, size_t))pair_release)(pointer, block->size);
        break;
    case STREAM:
        ((void (*)(void *, CUstream))pair_release)(pointer, stream);
        break;
    case POINTER:
        ((void (*)(void *))pair_release)(pointer);
        break;
    }
    return CUDA_SUCCESS;
}

static const struct cuplug_backend_ops pair_ops = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof pair_ops,
    .name = "pair",
    .alloc = pair_alloc,
    .free = pair_free,
};

/* --- Opening */

void cuplug_plugin_name(const char *spec) {
    named = spec;
}

const char *cuplug_plugin_named(void) {
    return named;
}

static bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool fail(const char *format, ...) {
    char what[700];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    cuplug_log(CUPLUG_LOG_ERROR, "CUPLUG_BACKEND=%s: %s%s", named, what,
               cuplug_options.strict ? "; allocations will fail" : "; using direct");
    return false;
}

static void *symbol(void *library, const char *name) {
    return cuplug_lookup_real_dlsym()(library, name);
}

/* The library's own function of that name, not one of a library that it needs. */
static void *own_symbol(void *library, const char *name) {
    void *found = symbol(library, name);
    struct link_map *map = NULL;

    dlerror();
    return found && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && cuplug_same_object(found, map->l_ld) ? found : NULL;
}

/* The functions that the options name, or a pair that is known: PyTorch's documentation, RMM, PyTorch's NCCL example. */
static bool find_pair(void *library, const char *given) {
    static const char *const known[][2] = {
        {"my_malloc", "my_free"}, {"allocate", "deallocate"}, {"nccl_alloc_plug", "nccl_free_plug"}};
    char names[200] = "";

    if (given && !cuplug_suboptions_known("plugin", given, strlen(given))) {
        cuplug_suboption_names("plugin", names, sizeof names);
        return fail("not all are options of a library with a pair of functions (%s)", names);
    }
    if (cuplug_plugin_options.alloc) {
        pair_malloc = (pair_alloc_fn *)symbol(library, cuplug_plugin_options.alloc);
        pair_release = pair_malloc ? symbol(library, cuplug_plugin_options.release) : NULL;
        return pair_release || fail("%s", dlerror());
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        pair_malloc = (pair_alloc_fn *)own_symbol(library, known[i][0]);
        pair_release = own_symbol(library, known[i][1]);
        if (pair_malloc && pair_release)
            return true;
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s and %s", known[i][0], known[i][1]);
    }
    return fail("it exports none of cuplug_backend_open%s (alloc=f,free=g names its functions)", names);
}

/* A table of an earlier or later version: what both sides know of it. */
static bool take_table(const struct cuplug_backend_ops *table, struct cuplug_backend_ops *taken) {
    const size_t least = offsetof(struct cuplug_backend_ops, open); /* what cannot be missing */

    if (!table)
        return fail("its cuplug_backend_open does not serve version %d of the interface", CUPLUG_BACKEND_ABI);
    if (table->abi_version != CUPLUG_BACKEND_ABI)
        return fail("it is for version %u of the interface, this cuplug has version %d", (unsigned)table->abi_version,
                    CUPLUG_BACKEND_ABI);
    if (table->struct_size < least)
        return fail("its table says it has %u bytes, which is less than %zu", (unsigned)table->struct_size, least);
    memcpy(taken, table, table->struct_size < sizeof *taken ? table->struct_size : sizeof *taken);
    if (!taken->alloc || !taken->free)
        return fail("its table has no %s", taken->alloc ? "free" : "alloc");
    return true;
}

static bool call_open(const struct cuplug_backend_ops *table, const char *options) {
    struct call call = {.table = table, .options = options};
    char what[160];

    if (!table->open)
        return true;
    if (!guarded(do_open, &call, true, what, sizeof what))
        return fail("its open threw %s", what);
    if (call.result != CUDA_SUCCESS)
        return fail("its open failed (CUDA error %d)", (int)call.result);
    cuplug_plugin_self = call.self;
    return true;
}

/* The table is taken over only when nothing can fail any more: a library that is closed again must leave no function behind. */
static bool take_library(void *library, const char *given) {
    struct cuplug_backend_ops taken = {0};
    cuplug_backend_open_fn *entry = (cuplug_backend_open_fn *)own_symbol(library, "cuplug_backend_open");
    bool fine;

    if (own_symbol(library, CUPLUG_MARK))
        return fail("that is cuplug itself");
    if (entry && !cuplug_plugin_options.alloc)
        fine = take_table(entry(CUPLUG_BACKEND_ABI), &taken) && call_open(&taken, given ? given : "");
    else
        fine = cuplug_plugin_pair = find_pair(library, given) && take_table(&pair_ops, &taken);
    if (fine)
        cuplug_plugin_ops = taken;
    return fine;
}

static bool open_library(void) {
    const char *given;
    char path[4096];
    size_t length;
    void *library;
    bool fine;

    cuplug_backend_of(named, strlen(named), &length, &given);
    snprintf(path, sizeof path, "%.*s", (int)length, named);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail("%s%s", dlerror(),
                    strchr(path, '/') ? "" : " (looked for as the loader does; ./ in front means the working directory)");
    fine = take_library(library, given);
    if (!fine)
        dlclose(library);
    return fine;
}

bool cuplug_plugin_opened(void) {
    return atomic_load_explicit(&state, memory_order_acquire) == READY;
}

/* Whoever comes first opens; the others wait, but not for ever: the library may itself be waiting for one of them. Those go to
 * the driver. */
static bool open_once(void) {
    const struct timespec pause = {.tv_nsec = 1000000};
    enum state now = UNOPENED;

    if (cuplug_self.depth == 0 && atomic_compare_exchange_strong(&state, &now, OPENING)) {
        int saved = errno;
        bool fine;

        cuplug_self.depth++; /* its constructors' CUDA calls are not the program's */
        fine = open_library();
        cuplug_self.depth--;
        errno = saved;
        atomic_store_explicit(&state, fine ? READY : FAILED, memory_order_release);
        return fine;
    }
    for (int i = 0; i < OPENING_WAITS && atomic_load(&state) == OPENING && cuplug_self.depth == 0; i++)
        nanosleep(&pause, NULL);
    return cuplug_plugin_opened();
}

bool cuplug_plugin_ready(void) {
    enum state now = atomic_load_explicit(&state, memory_order_acquire);

    return now == READY || (now != FAILED && open_once());
}
