/*
 * plugin_pending.c: freed blocks that the library gets back once the device is done with them. A library in PyTorch's form takes
 * a freed block for its own in the order of one stream, and may hand it out again at once; but cudaFree promises more, the
 * program's other streams know nothing of the library's, and a stream's handle comes back. So it gets only what no work of the
 * device can touch any more, whatever it does with it.
 *
 * A lane is a fence (shim/fence.h) and the blocks queued behind it, in the order of their marks. Each free records. Nothing is
 * handed over while anything captures, as the library's own cudaFree would spoil the capture. The lock guards lanes and queues,
 * not the fences.
 */
#include "plugin.h"

#include "registry.h"
#include "shim/capture.h"
#include "shim/stats.h"

enum { MANY_LANES = 64, AT_ONCE = 16, ASK_ALL_EVERY = 16 };
static const size_t slack = (size_t)64 << 20; /* queued by cudaFree before that waits, as it would have natively */

struct cuplug_plugin_lane {
    struct cuplug_plugin_lane *next;
    struct cuplug_context *context; /* whose work, or whose stream's; NULL: lost, and free for another */
    uint64_t stream_id;             /* 0: all of the context */
    struct cuplug_fence fence;
    struct cuplug_plugin_block *oldest, *newest;
    size_t bytes;
    bool dead; /* the stream is */
};
typedef struct cuplug_plugin_lane lane_t;

static struct cuplug_slab slab = {.object_size = sizeof(lane_t)};
static lane_t *lanes;                       /* only ever added to */
static struct cuplug_plugin_block *orphans; /* freed in the order of a stream whose context is gone, or not taken by the library: done */
static _Atomic unsigned turn;

/* One that may serve a stream of the context: it never leaves its context, whose events it has, unless that is lost. */
static lane_t *unused(const struct cuplug_context *context) {
    lane_t *empty = NULL;
    int count = 0;

    for (lane_t *lane = lanes; lane; lane = lane->next, count++) {
        if (!lane->context)
            return lane;
        if (lane->oldest || lane->context != context || !lane->stream_id)
            continue;
        if (lane->dead)
            return lane;
        empty = lane;
    }
    return count >= MANY_LANES ? empty : NULL; /* a thread's default stream dies with its thread, unseen */
}

static lane_t *lane_of(struct cuplug_context *context, CUstream stream, uint64_t stream_id) {
    lane_t *lane = lanes;

    while (lane && (lane->context != context || lane->stream_id != stream_id || lane->dead))
        lane = lane->next;
    if (lane)
        return lane;
    lane = unused(context);
    if (!lane) {
        lane = cuplug_slab_take(&slab);
        if (!lane)
            return NULL;
        lane->next = lanes;
        lanes = lane;
    }
    cuplug_fence_init(&lane->fence, context, stream, CUPLUG_BACKEND_PLUGIN);
    lane->context = context;
    lane->stream_id = stream_id;
    lane->dead = false;
    return lane;
}

static void queue(lane_t *lane, struct cuplug_plugin_block *block) {
    block->mark = cuplug_fence_mark(&lane->fence);
    block->next = NULL;
    if (lane->newest)
        lane->newest->next = block;
    else
        lane->oldest = block;
    lane->newest = block;
    lane->bytes += block->size;
}

lane_t *cuplug_plugin_queue(struct cuplug_plugin_block *block, struct cuplug_context *context, CUstream stream,
                            uint64_t stream_id) {
    lane_t *lane = lane_of(context, stream, stream_id);

    if (lane)
        queue(lane, block);
    return lane;
}

static size_t queued(const lane_t *lane) {
    size_t bytes;

    cuplug_lock(&cuplug_plugin_lock);
    bytes = lane->bytes;
    cuplug_unlock(&cuplug_plugin_lock);
    return bytes;
}

void cuplug_plugin_record(lane_t *lane, uint64_t mark, bool wait) {
    cuplug_fence_record(&lane->fence, mark); /* if it fails, the next one covers this free */
    if (wait && queued(lane) > slack && !cuplug_capturing())
        cuplug_fence_host_wait(&lane->fence, UINT64_MAX);
}

/* Takes the first block of a queue off. The lock is held. */
static struct cuplug_plugin_block *shift(lane_t *lane) {
    struct cuplug_plugin_block *block = lane->oldest;

    lane->oldest = block->next;
    if (!lane->oldest)
        lane->newest = NULL;
    lane->bytes -= block->size;
    return block;
}

/* A block that may go back to the library, out of queue and index; described before anybody else can have its record. */
static bool next_done(struct cuplug_block *described) {
    struct cuplug_plugin_block *block = NULL;

    cuplug_lock(&cuplug_plugin_lock);
    for (lane_t *lane = lanes; lane && !block; lane = lane->next)
        if (lane->oldest && cuplug_fence_passed(&lane->fence, lane->oldest->mark))
            block = shift(lane);
    if (!block && (block = orphans)) /* last: what the library does not take is in nobody's way */
        orphans = block->next;
    if (block)
        *described = cuplug_plugin_leave(block);
    cuplug_unlock(&cuplug_plugin_lock);
    return block != NULL;
}

/* The library did not take the block: it is asked again another time. */
static void keep(const struct cuplug_block *block) {
    struct cuplug_plugin_block *kept, **last = &orphans;

    cuplug_lock(&cuplug_plugin_lock);
    kept = cuplug_plugin_stay(block);
    while (*last)
        last = &(*last)->next;
    *last = kept;
    cuplug_unlock(&cuplug_plugin_lock);
}

/* False if the library refused. Not counted as a failure of the program's: its free was over long ago. */
static bool give(const struct cuplug_block *block, bool may_wait) {
    struct cuplug_release release = {.struct_size = sizeof release, .kind = CUPLUG_IDLE};
    CUresult result;

    if (!cuplug_context_enter(block->context)) /* gone, and its memory too */
        return true;
    result = cuplug_context_answered(block->context, cuplug_plugin_call_free(block, &release, may_wait));
    if (result != CUDA_SUCCESS)
        keep(block);
    cuplug_context_leave(block->context);
    if (result != CUDA_SUCCESS && !cuplug_context_fault(block->context))
        cuplug_plugin_complain(CUPLUG_PLUGIN_KEPT, "a free failed (CUDA error %d); the library is asked again later", (int)result);
    return result == CUDA_SUCCESS;
}

/* `may_wait`: for work of this context, or (NULL) of every one of the device. What is done elsewhere is handed over without. */
static size_t hand_over(bool may_wait, CUdevice device, const struct cuplug_context *context) {
    struct cuplug_block block;
    size_t bytes = 0;

    while (!cuplug_capturing() && !cuplug_exiting() && next_done(&block)) {
        bool here = context ? block.context == context : block.device == device;

        if (!give(&block, may_wait && here))
            break;
        bytes += block.size;
        cuplug_plugin_reserved(block.device, -(int64_t)block.size);
    }
    return bytes;
}

struct question {
    const struct cuplug_context *context; /* NULL: any */
    CUdevice device;                      /* -1: any */
    uint64_t stream_id;
    void (*ask)(lane_t *lane);
};

/* Asks about every lane that has blocks and is meant, without the lock. */
static void each(const struct question *question) {
    lane_t *found[AT_ONCE], *lane;
    int count;

    cuplug_lock(&cuplug_plugin_lock);
    lane = lanes;
    do {
        for (count = 0; lane && count < AT_ONCE; lane = lane->next)
            if (lane->oldest &&
                (!question->context ||
                 (lane->context == question->context && (!lane->stream_id || lane->stream_id == question->stream_id))) &&
                (question->device < 0 || lane->oldest->device == question->device))
                found[count++] = lane;
        cuplug_unlock(&cuplug_plugin_lock);
        for (int i = 0; i < count; i++)
            question->ask(found[i]);
        cuplug_lock(&cuplug_plugin_lock);
    } while (lane);
    cuplug_unlock(&cuplug_plugin_lock);
}

static void poll(lane_t *lane) {
    cuplug_fence_poll(&lane->fence);
}

static void wait(lane_t *lane) {
    cuplug_fence_host_wait(&lane->fence, UINT64_MAX);
}

/* Lets the lane's blocks wait for a record of the whole context instead. The lock is held. NULL if there is nothing to do so. */
static lane_t *to_context(lane_t *lane) {
    lane_t *all = lane->context && lane->oldest ? lane_of(lane->context, NULL, 0) : NULL;

    while (all && lane->oldest)
        queue(all, shift(lane));
    return all;
}

static void record_and_wait(lane_t *lane) {
    if (cuplug_fence_foreign(&lane->fence)) {
        cuplug_lock(&cuplug_plugin_lock);
        lane = to_context(lane);
        cuplug_unlock(&cuplug_plugin_lock);
        if (!lane)
            return;
    }
    cuplug_fence_record(&lane->fence, cuplug_fence_mark(&lane->fence));
    wait(lane);
}

size_t cuplug_plugin_hand_over(struct cuplug_context *context, uint64_t stream_id, bool may_wait) {
    bool all = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % ASK_ALL_EVERY == 0;
    struct question question = {.context = all ? NULL : context, .device = -1, .stream_id = stream_id, .ask = poll};

    each(&question);
    return hand_over(may_wait, context->device, context) + (may_wait ? cuplug_plugin_free_now(context->device, context) : 0);
}

bool cuplug_plugin_idle(struct cuplug_context *context) {
    struct cuplug_fence *fence = NULL;
    uint64_t mark = 0;
    lane_t *lane;

    if (!cuplug_fence_of_contexts()) /* a record would wait until it is */
        return false;
    cuplug_lock(&cuplug_plugin_lock);
    lane = lane_of(context, NULL, 0);
    if (lane) {
        fence = &lane->fence;
        mark = cuplug_fence_mark(fence);
    }
    cuplug_unlock(&cuplug_plugin_lock);
    if (!fence || !cuplug_fence_record(fence, mark))
        return false;
    cuplug_fence_poll(fence);
    return cuplug_fence_passed(fence, mark);
}

size_t cuplug_plugin_reclaim(CUdevice device, enum cuplug_plugin_effort effort) {
    static void (*const ask[])(lane_t *) = {poll, wait, record_and_wait};
    struct question question = {.device = device, .ask = ask[effort]};
    bool may_wait = effort >= CUPLUG_PLUGIN_WAIT;

    if (cuplug_capturing() || cuplug_exiting())
        return 0;
    each(&question);
    return hand_over(may_wait, device, NULL) + (may_wait ? cuplug_plugin_free_now(device, NULL) : 0);
}

size_t cuplug_plugin_pending(CUdevice device) {
    size_t bytes = 0;

    cuplug_lock(&cuplug_plugin_lock);
    for (lane_t *lane = lanes; lane; lane = lane->next)
        if (lane->oldest && lane->oldest->device == device)
            bytes += lane->bytes;
    cuplug_unlock(&cuplug_plugin_lock);
    return bytes;
}

void cuplug_plugin_lanes_stream_destroyed(struct cuplug_context *context, uint64_t stream_id) {
    lane_t *lane;
    uint64_t mark = 0;
    bool seen = true;

    cuplug_lock(&cuplug_plugin_lock);
    lane = lanes;
    while (lane && (lane->context != context || lane->stream_id != stream_id || lane->dead))
        lane = lane->next;
    if (lane && lane->newest)
        mark = lane->newest->mark + 1;
    cuplug_unlock(&cuplug_plugin_lock);
    if (!lane)
        return;
    if (mark) /* the last chance to watch its work, which goes on */
        seen = cuplug_fence_record(&lane->fence, mark - 1);
    cuplug_lock(&cuplug_plugin_lock);
    if (lane->context == context && lane->stream_id == stream_id) {
        lane->dead = true;
        if (!seen)
            to_context(lane);
    }
    cuplug_unlock(&cuplug_plugin_lock);
}

void cuplug_plugin_lanes_lost(struct cuplug_context *context) {
    for (lane_t *lane = lanes; lane; lane = lane->next) {
        struct cuplug_plugin_block *rest = lane->oldest;
        bool lost = lane->context == context;

        lane->oldest = lane->newest = NULL;
        lane->bytes = 0;
        while (rest) {
            struct cuplug_plugin_block *block = rest;

            rest = block->next;
            if (block->context == context)
                continue;
            if (lost) {
                block->next = orphans;
                orphans = block;
                continue;
            }
            block->next = NULL;
            if (lane->newest)
                lane->newest->next = block;
            else
                lane->oldest = block;
            lane->newest = block;
            lane->bytes += block->size;
        }
        if (lost) {
            cuplug_fence_forget(&lane->fence);
            lane->context = NULL;
        }
    }
    for (struct cuplug_plugin_block **link = &orphans; *link;)
        if ((*link)->context == context)
            *link = (*link)->next;
        else
            link = &(*link)->next;
}
