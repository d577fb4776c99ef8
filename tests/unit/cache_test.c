/*
 * cache_test.c: what the backends make of an alignment (C43), which no CUDA call can ask for, against a model of a driver that
 * only hands out addresses: every block lies within a segment, at its alignment, apart from all others, and all of it comes back.
 * A user would lose: other blocks' data, by a padded size that became negative. And what they keep of streams that are gone (C54).
 */
#include "backends/cache.h"
#include "backends/registry.h"
#include "config/options.h"
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/log.h"
#include "shim/others.h"
#include "quiet_shim.h"
#include "unit.h"

#define MIB ((size_t)1 << 20)

enum { SEGMENTS = 64, BLOCKS = 256 };

/* The driver: addresses that never come back, 2 MiB apart, and 64 MiB of memory. */
static struct {
    CUdeviceptr base;
    size_t size;
} segments[SEGMENTS];
static CUdeviceptr next_address = 0x7f0000000000;
static size_t taken;
static const size_t memory = 64 * MIB;

static CUresult segment_alloc(CUdeviceptr *base, size_t size) {
    int i = 0;

    while (i < SEGMENTS && segments[i].base)
        i++;
    if (i == SEGMENTS || size > memory - taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken += size;
    *base = segments[i].base = next_address;
    segments[i].size = size;
    next_address += (size / (2 * MIB) + 2) * 2 * MIB;
    return CUDA_SUCCESS;
}

static CUresult segment_alloc_managed(CUdeviceptr *base, size_t size, unsigned flags) {
    (void)flags;
    return segment_alloc(base, size);
}

static CUresult segment_free(CUdeviceptr base) {
    for (int i = 0; i < SEGMENTS; i++)
        if (segments[i].base == base) {
            taken -= segments[i].size;
            segments[i].base = 0;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_info(size_t *free, size_t *total) {
    *free = memory - taken;
    *total = memory;
    return CUDA_SUCCESS;
}

static struct cuplug_cache *watched;
static bool under_lock; /* a call came while its lock was held */

static CUresult device_memory(size_t *bytes, CUdevice device) {
    (void)device;
    under_lock |= watched && atomic_load(&watched->lock.state);
    *bytes = memory;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)attribute, (void)device;
    *value = 1;
    return CUDA_SUCCESS;
}

static size_t events, queries;
static bool behind; /* the device is, so that no event is done */

static CUresult event_create(CUevent *event, unsigned flags) {
    (void)flags;
    events++;
    *event = (CUevent)8;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream) {
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
    (void)event;
    queries++;
    return behind ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult of_context(CUcontext context, CUevent event) {
    (void)context, (void)event;
    return CUDA_SUCCESS;
}

static CUresult of_event(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

struct cuplug_real cuplug_real = {{{
    .cuMemAlloc_v2 = segment_alloc,
    .cuMemAllocManaged = segment_alloc_managed,
    .cuMemFree_v2 = segment_free,
    .cuMemGetInfo_v2 = memory_info,
    .cuDeviceTotalMem_v2 = device_memory,
    .cuDeviceGetAttribute = device_attribute,
    .cuEventCreate = event_create,
    .cuEventRecord = event_record,
    .cuEventQuery = event_query,
    .cuEventSynchronize = of_event,
    .cuCtxRecordEvent = of_context,
    .cuCtxWaitEvent = of_context,
}}};

/* What the backends need of the rest of the shim. */
struct cuplug_options cuplug_options;
struct cuplug_pool_options cuplug_pool_options = {.max = {true, 100}, .keep = {true, 100}, .slack = {true, 3}};
struct cuplug_arena_options cuplug_arena_options = {.size = {.value = 48 * MIB}};
struct cuplug_managed_options cuplug_managed_options = {.preferred = 2, .accessed = 1, .max = {.value = 48 * MIB}};
static struct cuplug_context *context;

void cuplug_log(enum cuplug_log_level level, const char *format, ...) {
    (void)level, (void)format;
}
void *cuplug_real_address(enum cuplug_real_index index) {
    return ((void **)&cuplug_real)[index];
}
bool cuplug_context_enter(struct cuplug_context *entered) {
    return entered == context;
}
void cuplug_context_leave(struct cuplug_context *left) {
    (void)left;
}
void cuplug_context_each(void (*visit)(struct cuplug_context *, void *), void *arg) {
    visit(context, arg);
}
bool cuplug_context_shared(void) {
    return false;
}
bool cuplug_hooked = true;
void cuplug_others_look(void) {}
bool cuplug_capturing(void) {
    return false;
}
void cuplug_stats_allocated(int backend, int device, size_t size) {
    (void)backend, (void)device, (void)size;
}

void cuplug_stats_freed(int backend, int device, size_t size) {
    (void)backend, (void)device, (void)size;
}

void cuplug_stats_settle(struct cuplug_tally *tally) {
    (void)tally;
}
void cuplug_stats_level(int backend, int device, enum cuplug_counter level, int64_t by) {
    (void)backend, (void)device, (void)level, (void)by;
}

static struct cuplug_kept kept;
struct cuplug_kept *cuplug_kept_make(void) {
    return cuplug_self.kept = &kept;
}
struct cuplug_kept *cuplug_kept_first(void) {
    return &kept;
}

static const struct cuplug_backend_ops *ops;
static void *self;
static struct cuplug_block block[BLOCKS];
static int blocks;

static bool within_a_segment(CUdeviceptr pointer, size_t size) {
    for (int i = 0; i < SEGMENTS; i++)
        if (segments[i].base && pointer >= segments[i].base && pointer - segments[i].base <= segments[i].size &&
            size <= segments[i].size - (pointer - segments[i].base))
            return true;
    return false;
}

static bool apart(const struct cuplug_block *one, const struct cuplug_block *other) {
    return one->pointer >= other->pointer + other->size || other->pointer >= one->pointer + one->size;
}

static CUresult allocate(size_t size, size_t alignment) {
    struct cuplug_request request = {
        .struct_size = sizeof request, .kind = CUPLUG_SYNC, .size = size, .alignment = alignment, .context = context};

    block[blocks] = (struct cuplug_block){.size = size, .context = context};
    return ops->alloc(self, &request, &block[blocks]);
}

/* The core never asks for no bytes at all, but a plain refusal or an empty range does no harm. */
static void take(size_t size, size_t alignment) {
    CUresult result = allocate(size, alignment);

    if (!size && result == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    CHECK(result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        return;
    CHECK(within_a_segment(block[blocks].pointer, size));
    CHECK(alignment == 0 || block[blocks].pointer % alignment == 0);
    for (int i = 0; i < blocks; i++)
        CHECK(apart(&block[blocks], &block[i]));
    blocks++;
}

static void give(int i) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_SYNC};

    CHECK(ops->free(self, &block[i], &release) == CUDA_SUCCESS);
    block[i] = block[--blocks];
}

static struct cuplug_context contexts[2 * CUPLUG_BACKEND_COUNT];
static int used;

static void try_backend(const struct cuplug_backend_ops *backend) {
    static const size_t alignments[] = {0, 1, 2, 32, 256, 512, 4096, 2 * MIB}, sizes[] = {0, 1, 31, 32, 256, 513, 100000};
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX - 511, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
    context = &contexts[used++];
    ops = backend;
    CHECK(ops->open("", &self) == CUDA_SUCCESS);
    for (int round = 0; round < 3; round++) { /* then into the gaps that every third block leaves */
        for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                take(sizes[s], alignments[a]);
        for (int i = blocks - 1; i >= 0; i -= round < 2 ? 3 : 1)
            give(i);
    }
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++)
        for (size_t s = 0; s < sizeof absurd / sizeof *absurd; s++)
            CHECK(allocate(absurd[s], alignments[a]) == CUDA_ERROR_OUT_OF_MEMORY);
    while (blocks)
        give(0);
    ops->trim(self, 0, NULL);
    if (ops == &cuplug_backend_arena) /* which keeps its segment: all of it serves again */
        take(48 * MIB, 0);
    else
        CHECK(taken == 0);
    while (blocks)
        give(0);
}

static void pool_blocks_lie_where_they_should(void) {
    try_backend(&cuplug_backend_pool);
}

static void managed_blocks_lie_where_they_should(void) {
    try_backend(&cuplug_backend_managed);
}

static void arena_blocks_lie_where_they_should(void) {
    try_backend(&cuplug_backend_arena);
}

enum { STREAMS = 10000, SOME_DOZENS = 200 + CUPLUG_ORDERED /* that a thread holds on to */ };

static void pair_in_stream(uint64_t id, CUstream stream) {
    struct cuplug_request request = {
        .struct_size = sizeof request, .kind = CUPLUG_ASYNC, .size = 512, .context = context, .stream = stream, .stream_id = id};
    struct cuplug_release release = {
        .struct_size = sizeof release, .kind = CUPLUG_ASYNC, .context = context, .stream = stream, .stream_id = id};
    struct cuplug_block pair = {.size = 512, .kind = CUPLUG_ASYNC, .context = context};

    CHECK(ops->alloc(self, &request, &pair) == CUDA_SUCCESS);
    CHECK(ops->free(self, &pair, &release) == CUDA_SUCCESS);
}

/* Streams that come, free and go: the program destroys one, or its thread ends, which nobody sees. */
static void come_and_go(uint64_t from, bool destroyed) {
    for (uint64_t id = from; id < from + STREAMS; id++) {
        pair_in_stream(id, destroyed ? (CUstream)id : CU_STREAM_PER_THREAD);
        if (destroyed)
            ops->stream_destroyed(self, context, (CUstream)id, id);
    }
}

static size_t length(const struct cuplug_cache_stream *stream) {
    size_t count = 0;

    for (; stream; stream = stream->next)
        count++;
    return count;
}

/* What an allocation or free walks along, and what there is in all. */
static size_t in_use(void) {
    return length(((struct cuplug_cache *)context->cache[((struct cuplug_policy *)self)->backend])->streams);
}
static size_t objects(void) {
    return in_use() + length(((struct cuplug_cache *)context->cache[((struct cuplug_policy *)self)->backend])->unused_streams);
}

/* Though there is always memory ready, so that no allocation has to ask what is done. */
static void try_streams(const struct cuplug_backend_ops *backend) {
    context = &contexts[used++];
    atomic_store(&context->origin, CUPLUG_CONTEXT_PRIMARY);
    ops = backend;
    taken = 0; /* another device */
    CHECK(ops->open("", &self) == CUDA_SUCCESS);
    take(32 * MIB, 0);
    give(0);
    events = 0;
    come_and_go(3, true);
    CHECK(events < SOME_DOZENS && objects() < SOME_DOZENS);
    come_and_go(3 + STREAMS, false);
    CHECK(events < SOME_DOZENS && objects() < SOME_DOZENS);
    if (unit_failed) /* the rest would take long */
        return;
    /* With the device behind all is kept, and hardly asked for; later it goes, without another new stream. */
    behind = true;
    queries = 0;
    come_and_go(3 + 2 * STREAMS, true);
    CHECK(queries < 4 * STREAMS);
    CHECK(in_use() > STREAMS / 2);
    behind = false;
    for (int i = 0; i < 5 * STREAMS; i++)
        pair_in_stream(1, NULL);
    CHECK(in_use() < SOME_DOZENS);
}

static void streams_that_are_gone_leave_nothing_behind(void) {
    try_streams(&cuplug_backend_pool);
    try_streams(&cuplug_backend_managed);
    try_streams(&cuplug_backend_arena);
}

/* A cache that serves its second context asks again what keep= comes to. */
static void the_driver_is_not_asked_under_a_lock(void) {
    struct cuplug_amount before = cuplug_pool_options.keep;

    cuplug_pool_options.keep = (struct cuplug_amount){.percent = true, .value = 50};
    ops = &cuplug_backend_pool;
    CHECK(ops->open("", &self) == CUDA_SUCCESS);
    for (int life = 0; life < 2; life++) {
        context = &contexts[used++];
        atomic_store(&context->origin, CUPLUG_CONTEXT_PRIMARY);
        take(4096, 0);
        give(0);
        CHECK(!watched || watched == context->cache[CUPLUG_BACKEND_POOL]);
        watched = context->cache[CUPLUG_BACKEND_POOL];
        atomic_store(&context->gone, true);
        ops->context_lost(self, context);
    }
    CHECK(!under_lock);
    watched = NULL;
    cuplug_pool_options.keep = before;
}

int main(void) {
    RUN(pool_blocks_lie_where_they_should);
    RUN(managed_blocks_lie_where_they_should);
    RUN(arena_blocks_lie_where_they_should);
    RUN(streams_that_are_gone_leave_nothing_behind);
    RUN(the_driver_is_not_asked_under_a_lock);
    return 0;
}
