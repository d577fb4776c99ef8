/*
 * others.c: what happens beside allocations and frees: streams and contexts come and go, blocks go to other threads, streams
 * capture, the driver fails, and the program asks questions and makes mistakes.
 */
#include "soak.h"

#include "shim/cuplug.h"

#include <errno.h>
#include <sched.h>

enum { SHELF = 64, FIRST_CREATED = 2 * CONTEXTS, MOST_STEPS = 6 };

void simcuda_fail(const char *items);

static void CUDA_CB sleep_on_device(void *us) {
    struct timespec t = {0, (long)(intptr_t)us * 1000};

    nanosleep(&t, NULL);
}

/* A kernel that takes its time. */
static void delay(struct thread *t) {
    int lane = any_lane(t);
    long us = soak.slow > 1 ? 1000 + (long)draw(t, 8000) : (long)(4u << draw(t, 11));

    if (!soak.slow)
        return;
    enter(t, t->lanes[lane].place);
    MUST(cuLaunchHostFunc(t->lanes[lane].stream, sleep_on_device, (void *)us));
}

static void synchronise(struct thread *t) {
    struct moment before = moment();
    int lane = any_lane(t), result;

    enter(t, t->lanes[lane].place);
    result = (int)cuStreamSynchronize(t->lanes[lane].stream);
    if (result && !captured_since(before))
        must(result, "cuStreamSynchronize");
}

/* Whatever was last used on a stream that goes is used on another from now on. */
static void move_from(struct thread *t, int lane) {
    int to = 2 * (int)t->lanes[lane].place;

    for (int i = 0; i < SLOTS; i++)
        if (t->blocks[i].address && t->blocks[i].lane == lane)
            move(t, &t->blocks[i], to);
}

void lane_operation(struct thread *t) {
    int lane = FIRST_CREATED + (int)draw(t, LANES - FIRST_CREATED);
    struct lane *at = &t->lanes[lane];
    uint32_t what = draw(t, 8);

    if (what < 4) {
        delay(t);
    } else if (what == 4) {
        synchronise(t);
    } else if (at->there) {
        move_from(t, lane);
        enter(t, at->place);
        at->there = false;
        MUST(cuStreamDestroy(at->stream));
    } else {
        at->place = t->lanes[any_lane(t)].place;
        enter(t, at->place);
        MUST(cuStreamCreate(&at->stream, draw(t, 2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        at->there = true;
    }
}

/* --- contexts --- */

static void context_begin(struct thread *t) {
    MUST(cuCtxCreate(&t->own, NULL, 0, 0));
    t->current = OWN;
    for (int i = 2 * OWN; i < FIRST_CREATED; i++)
        t->lanes[i].there = true;
    count(&tally.contexts, 1);
}

/* Does its stream-ordered memory end with a context? The driver's belongs to a pool, which is the device's, and so does what a pair of
 * functions is not asked for. */
static bool all_ends(void) {
    return soak.backend && strcmp(soak.backend, "direct") != 0 && strcmp(soak.backend, "plugin") != 0 && strcmp(soak.backend, "async") != 0;
}

static void lose(struct thread *t, struct block *block) {
    int home = 2 * OWN;

    move(t, block, home); /* the context's end waits for its own work only */
    if (!block->unused) {
        enter(t, OWN);
        visit(t, LAST_USE, block, t->lanes[home].stream, NULL);
    }
    model_release(block);
    count(&tally.live_bytes, -((block->size + 511) & ~(size_t)511));
    count(&tally.live_blocks, -1);
    count(&tally.lost, 1);
    *block = (struct block){0};
}

void context_end(struct thread *t) {
    if (!t->own)
        return;
    for (int i = 0; i < SLOTS; i++) {
        struct block *block = &t->blocks[i];

        if (!block->address)
            continue;
        if (block->place == OWN && (block->kind == SYNC || all_ends()) && draw(t, 4)) {
            lose(t, block);
        } else if (block->place == OWN) {
            while (block->address)
                release(t, block);
        } else if (t->lanes[block->lane].place == OWN) {
            move(t, block, 2 * (int)block->place);
        }
    }
    MUST(cuCtxDestroy(t->own)); /* with its events and streams */
    t->own = NULL;
    t->mark[OWN] = NULL;
    t->current = -1;
    for (int i = 0; i < LANES; i++)
        t->lanes[i].there &= t->lanes[i].place != OWN;
    enter(t, PRIMARY);
}

void context_operation(struct thread *t) {
    if (soak.contexts < 3)
        return;
    if (t->own)
        context_end(t);
    else
        context_begin(t);
}

/* --- faults of the driver --- */

static void trim(struct thread *t) {
    struct moment before = moment();
    long long result = cuplug_trim ? cuplug_trim(0) : 0;

    (void)t;
    if (result < 0 && !(result == -EBUSY && captured_since(before)))
        wrong("cuplug_trim: %lld", result);
}

void fault_end(struct thread *t) {
    if (!t->armed_until)
        return;
    t->armed_until = 0;
    simcuda_fail(NULL);
    fault_is(false);
}

/* One of the driver's functions fails a few times, during the next operations. By one thread, as there is one list. */
void fault_operation(struct thread *t) {
    static const char *const functions[] = {"cuMemAlloc_v2",      "cuMemAlloc_v2",  "cuMemAllocManaged", "cuMemAllocAsync",
                                            "cuMemFree_v2",       "cuMemFree_v2",   "cuMemFreeAsync",    "cuCtxRecordEvent",
                                            "cuCtxRecordEvent",   "cuCtxWaitEvent", "cuEventRecord",     "cuEventQuery",
                                            "cuEventSynchronize", "cuEventCreate",  "cuMemGetInfo_v2",   "cuMemAllocPitch_v2"};
    uint32_t first = 1 + draw(t, 3), length = draw(t, 6),
             code = draw(t, 2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
    const char *function = functions[draw(t, COUNT_OF(functions))];
    char text[96];

    if (!soak.faults || t->number || t->armed_until)
        return;
    snprintf(text, sizeof text, "%s:%u-%u=%u", function, first, first + length, code);
    fault_is(true);
    simcuda_fail(text);
    t->armed_until = t->operation + 1 + draw(t, 200);
    if (draw(t, 2))
        trim(t);
    count(&tally.faults, 1);
}

/* --- questions and mistakes --- */

static void range(struct thread *t) {
    struct block *block = any_block(t);
    CUdeviceptr base = 0;
    size_t size = 0;

    if (!block->address)
        return;
    enter(t, block->place);
    MUST(cuMemGetAddressRange(&base, &size, block->address + next_of(&t->random) % block->size));
    if (base != block->address || size != block->size)
        wrong("block %u of %zu bytes at %#llx is said to be %zu bytes at %#llx", block->id, block->size, block->address, size,
              base);
}

static void memory_info(struct thread *t) {
    struct moment before = moment();
    size_t available = 0, total = 0;
    int result;

    enter(t, t->lanes[any_lane(t)].place);
    result = (int)(draw(t, 2) ? (int)cudaMemGetInfo(&available, &total) : (int)cuMemGetInfo(&available, &total));
    if (result) {
        cudaGetLastError();
        if (!faulted_since(before) && !captured_since(before))
            must(result, "cuMemGetInfo");
    } else if (available > total) {
        wrong("%zu of %zu bytes are free", available, total);
    }
}

void question(struct thread *t) {
    uint32_t what = draw(t, 64);

    if (what < 48)
        range(t);
    else if (what < 62)
        memory_info(t);
    else
        trim(t);
}

static int free_somehow(struct thread *t, CUdeviceptr address) {
    int lane = any_lane(t), result;
    CUstream stream = t->lanes[lane].stream;

    enter(t, t->lanes[lane].place);
    switch (draw(t, 4)) {
    case 0:
        return (int)cuMemFree(address);
    case 1:
        return (int)cuMemFreeAsync(address, stream);
    case 2:
        result = (int)cudaFree((void *)address);
        break;
    default:
        result = (int)cudaFreeAsync((void *)address, stream);
    }
    if ((int)cudaGetLastError() != result)
        wrong("a free of the runtime answered %d, but its last error is another", result);
    return result;
}

static void refuse(struct thread *t, CUdeviceptr address, const char *what) {
    struct moment before = moment();
    int result = free_somehow(t, address);
    bool excused = captured_since(before) || faulted_since(before);

    count(&tally.refused, 1);
    if (result == CUDA_SUCCESS || (result != CUDA_ERROR_INVALID_VALUE && !excused))
        wrong("the free of %s %#llx answered %d", what, address, result);
}

static void mistaken_allocation(struct thread *t) {
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 511, (size_t)1 << 60, (size_t)1 << 48};
    size_t size = draw(t, 2) ? 0 : huge[draw(t, COUNT_OF(huge))];
    int lane = any_lane(t), result, expected = size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    struct moment before = moment();
    CUdeviceptr address = 7;

    enter(t, t->lanes[lane].place);
    switch (draw(t, 3)) {
    case 0:
        result = (int)cudaMalloc((void **)&address, size);
        cudaGetLastError();
        break;
    case 1:
        result = (int)cuMemAllocAsync(&address, size, t->lanes[lane].stream);
        break;
    default:
        result = (int)cuMemAlloc(&address, size);
        expected = size ? expected : CUDA_ERROR_INVALID_VALUE;
    }
    if (size)
        count(&tally.other_failures, 1);
    if (address)
        wrong("an allocation of %zu bytes gave %#llx", size, address);
    if (result != expected && !captured_since(before) && !faulted_since(before))
        wrong("an allocation of %zu bytes answered %d", size, result);
}

void illegal(struct thread *t) {
    struct block *block = any_block(t);
    CUdeviceptr dead = t->dead[draw(t, DEAD)];

    switch (draw(t, 4)) {
    case 0:
        if (block->address && block->size > 1)
            refuse(t, block->address + 1 + next_of(&t->random) % (block->size - 1), "the interior pointer");
        break;
    case 1: /* another thread might have got it by now */
        if (soak.threads == 1 && dead && model_free(dead))
            refuse(t, dead, "the freed pointer");
        break;
    case 2:
        refuse(t, 0x1234, "no pointer");
        break;
    default:
        mistaken_allocation(t);
    }
}

/* --- captures --- */

struct recording {
    CUstream stream;
    int lane;                       /* where it is launched, of the same context */
    bool disturbed;                 /* the thread did something else meanwhile */
    CUdeviceptr memory[MOST_STEPS]; /* the graph's */
    void *nodes[MOST_STEPS];
    int memories, visits;
    struct moment before;
};

/* In a capture everything may come to nothing because others spoil it. */
static bool went(const struct recording *r, int result, const char *call) {
    if (result == CUDA_SUCCESS)
        return true;
    if (!captured_since(r->before) ||
        (result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !(result == CUDA_ERROR_OUT_OF_MEMORY && strstr(call, "Alloc")) &&
         !faulted_since(r->before)))
        must(result, call);
    return false;
}

static void take_graph_memory(struct recording *r, size_t size) {
    CUdeviceptr memory = 0;

    if (went(r, (int)cuMemAllocAsync(&memory, size, r->stream), "cuMemAllocAsync in a capture")) {
        r->memory[r->memories++] = memory;
        went(r, (int)cuMemsetD8Async(memory, 1, size, r->stream), "cuMemsetD8Async in a capture");
    }
}

/* It must be in the graph: what a launch leaves would be in the way of the next. A planted fault fails only so many calls. */
static void give_graph_memory(const struct recording *r, CUdeviceptr memory) {
    int result = (int)cuMemFreeAsync(memory, r->stream);

    for (int tries = 0; result && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && faulted_since(r->before) && tries < 20;
         tries++)
        result = (int)cuMemFreeAsync(memory, r->stream);
    went(r, result, "cuMemFreeAsync in a capture");
}

static void step(struct thread *t, struct recording *r, void (*between)(struct thread *)) {
    struct block *block = any_block(t);
    uint32_t what = draw(t, 4);

    if (what == 0) {
        take_graph_memory(r, 1 + draw(t, 100000));
    } else if (what == 1 && block->address && !block->pinned && !block->unused) {
        move(t, block, r->lane); /* the launch comes after */
        block->pinned = true;
        enter(t, t->lanes[r->lane].place);
        r->nodes[r->visits] = visit_node(t, block, r->stream);
        r->visits += r->nodes[r->visits] != NULL;
    } else if (what == 2 && block->address) { /* a graph frees only what graphs allocated */
        int result = (int)cuMemFreeAsync(block->address, r->stream);

        if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !faulted_since(r->before))
            wrong("the free of block %u on a capturing stream answered %d", block->id, result);
    } else if (what == 3) {
        uint32_t blocks = draw(t, 4);

        r->disturbed = true;
        for (uint32_t i = 0; i < blocks; i++)
            between(t);
        enter(t, t->lanes[r->lane].place);
    }
}

static void launch(struct thread *t, struct recording *r, CUgraph graph) {
    CUgraphExec executable;
    uint32_t times = 1 + draw(t, 2);

    MUST(cuGraphInstantiate(&executable, graph, 0));
    enter(t, t->lanes[r->lane].place);
    for (uint32_t i = 0; i < times; i++)
        MUST(cuGraphLaunch(executable, t->lanes[r->lane].stream));
    MUST(cuGraphExecDestroy(executable)); /* what is under way goes on */
    MUST(cuGraphDestroy(graph));
}

static void forget(struct thread *t, struct recording *r) {
    for (int i = 0; i < r->visits; i++)
        visit_forget(t, r->nodes[i], t->lanes[r->lane].stream);
    for (int i = 0; i < SLOTS; i++)
        t->blocks[i].pinned = false;
}

void capture(struct thread *t, void (*between)(struct thread *)) {
    CUstreamCaptureMode mode = (CUstreamCaptureMode)draw(t, 3), former = (CUstreamCaptureMode)draw(t, 3);
    struct recording r = {.lane = any_lane(t)};
    uint32_t steps = 1 + draw(t, MOST_STEPS);
    CUgraph graph = NULL;
    int result;

    if (!soak.captures || t->capturing)
        return;
    enter(t, t->lanes[r.lane].place);
    MUST(cuStreamCreate(&r.stream, CU_STREAM_NON_BLOCKING));
    MUST(cuThreadExchangeStreamCaptureMode(&former));
    t->capturing = true;
    capture_is(true);
    r.before = moment();
    MUST(cuStreamBeginCapture(r.stream, mode));
    for (uint32_t i = 0; i < steps; i++)
        step(t, &r, between);
    for (int i = 0; i < r.memories; i++)
        give_graph_memory(&r, r.memory[i]);
    result = (int)cuStreamEndCapture(r.stream, &graph);
    capture_is(false);
    t->capturing = false;
    MUST(cuThreadExchangeStreamCaptureMode(&former));
    /* A relaxed one nobody may spoil, a thread's own only the thread. */
    if (result && (mode == CU_STREAM_CAPTURE_MODE_RELAXED || (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !r.disturbed) ||
                   (soak.threads == 1 && !r.disturbed) || result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED))
        wrong("a capture of mode %d ended with %d", (int)mode, result);
    if (!result)
        launch(t, &r, graph);
    forget(t, &r);
    MUST(cuStreamDestroy(r.stream));
    count(&tally.captured, 1);
}

/* --- from thread to thread --- */

struct parcel {
    struct block block;
    CUevent event; /* its last use; NULL: that is over */
};

static struct parcel shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;

static struct parcel pack(struct thread *t, struct block *block) {
    struct parcel parcel = {.block = *block};

    enter(t, t->lanes[block->lane].place);
    if (draw(t, 16) == 0 || cuEventCreate(&parcel.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        parcel.event = NULL;
    if (parcel.event && cuEventRecord(parcel.event, t->lanes[block->lane].stream) != CUDA_SUCCESS) {
        MUST(cuEventDestroy(parcel.event));
        parcel.event = NULL;
    }
    if (!parcel.event)
        wait_for_last_use(t, block);
    *block = (struct block){0};
    return parcel;
}

static void unpack(struct thread *t, struct parcel *parcel, struct block *block) {
    *block = parcel->block;
    if (!block->address)
        return;
    block->lane = any_lane(t);
    if (!parcel->event)
        return;
    enter(t, t->lanes[block->lane].place);
    MUST(cuStreamWaitEvent(t->lanes[block->lane].stream, parcel->event, 0));
    MUST(cuEventDestroy(parcel->event));
}

/* The block goes to whoever comes by its place; what lay there comes to us. */
void hand_over(struct thread *t, struct block *block) {
    size_t place = draw(t, SHELF);
    struct parcel mine, theirs;

    if (!block->address || block->place == OWN || t->lanes[block->lane].place == OWN)
        return;
    mine = pack(t, block);
    pthread_mutex_lock(&shelf_lock);
    theirs = shelf[place];
    shelf[place] = mine;
    pthread_mutex_unlock(&shelf_lock);
    unpack(t, &theirs, block);
    count(&tally.handed, 1);
}

void shelf_clear(struct thread *t) {
    for (int i = 0; i < SHELF; i++) {
        struct block block;

        unpack(t, &shelf[i], &block);
        shelf[i] = (struct parcel){0};
        while (block.address)
            release(t, &block);
    }
}
