/*
 * operations.c: allocating, using and freeing a block in every way there is, and what each call may answer.
 */
#include "soak.h"

#include <sched.h>

enum { MOST_QUEUED = 200 };

static _Atomic uint64_t captures_begun, captures_now, faults_armed, faults_now;

struct moment moment(void) {
    return (struct moment){read_count(&captures_begun), read_count(&faults_armed)};
}

bool captured_since(struct moment before) {
    return read_count(&captures_now) > 0 || read_count(&captures_begun) != before.captures;
}

bool faulted_since(struct moment before) {
    return read_count(&faults_now) > 0 || read_count(&faults_armed) != before.faults;
}

/* Counted before it is under way, and after its end: a call that overlaps with it sees one of the two. */
static void change(_Atomic uint64_t *now, _Atomic uint64_t *changes, bool up) {
    if (up)
        count(now, 1);
    count(changes, 1);
    if (!up)
        count(now, (uint64_t)-1);
}

void capture_is(bool under_way) {
    change(&captures_now, &captures_begun, under_way);
}

void fault_is(bool armed) {
    change(&faults_now, &faults_armed, armed);
}

void must(int result, const char *call) {
    if (result)
        wrong("%s: error %d", call, result);
}

/* A planted fault fails a call a few times only. */
#define INSIST(call)                                                                                                             \
    for (int tries = 0, result; (result = (int)(call)) != 0; tries++)                                                            \
        if (!read_count(&faults_now) || tries > 20)                                                                              \
    wrong("%s: error %d", #call, result)

void enter(struct thread *t, enum place place) {
    if (t->current == (int)place)
        return;
    MUST(cuCtxSetCurrent(place == OWN ? t->own : soak.context[place]));
    t->current = (int)place;
}

static struct lane *lane_of(struct thread *t, int lane) {
    enter(t, t->lanes[lane].place);
    return &t->lanes[lane];
}

void order(struct thread *t, int from, int to) {
    struct lane *lane = lane_of(t, from);
    CUevent *event = &t->mark[lane->place];

    if (from == to)
        return;
    if (!*event)
        INSIST(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    INSIST(cuEventRecord(*event, lane->stream));
    lane = lane_of(t, to);
    MUST(cuStreamWaitEvent(lane->stream, *event, 0));
}

void move(struct thread *t, struct block *block, int lane) {
    if (block->kind == ORDERED || !block->unused) /* what is nobody's before a stream gets there, or in use */
        order(t, block->lane, lane);
    block->lane = lane;
}

int any_lane(struct thread *t) {
    int lane;

    do
        lane = (int)draw(t, LANES);
    while (!t->lanes[lane].there);
    return lane;
}

int some_lane(struct thread *t, enum place place) {
    for (int tries = 0; tries < 8; tries++) {
        int lane = any_lane(t);

        if (t->lanes[lane].place == place)
            return lane;
    }
    return 2 * (int)place + (int)draw(t, 2);
}

/* The host may be ahead of the device, but not without end. */
static void visit_in(struct thread *t, enum visit what, const struct block *block, atomic_bool *done) {
    if (block->unused && !done)
        return;
    while (atomic_load(&t->queued) >= MOST_QUEUED)
        sched_yield();
    visit(t, block->unused ? NO_USE : what, block, lane_of(t, block->lane)->stream, done);
}

static size_t draw_size(struct thread *t) {
    static const size_t favourites[] = {1, 512, 513, 4 * KIB, 64 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 512};
    size_t size;

    do {
        if (draw(t, 2)) {
            size = favourites[draw(t, COUNT_OF(favourites))];
        } else {
            size = (size_t)1 << draw(t, 27);
            size += next_of(&t->random) % size;
        }
    } while (size > soak.largest);
    return size;
}

/* Is there memory for it, however bad the rest lies? Free memory has at most two gaps for each live block, and one of them is as
 * large as all are on average; a segment of the driver's memory without live blocks is no gap of its own, as it is given back. */
static bool promised(size_t size) {
    size_t live = read_count(&tally.live_bytes), blocks = read_count(&tally.live_blocks), aside = soak.room / 8;

    if (!soak.room || soak.threads > 1 || soak.contexts > 1 || soak.room < live + aside)
        return false;
    return size + 2 * MIB <= (soak.room - live - aside) / (2 * blocks + 1);
}

static void count_live(size_t size, int by) {
    size_t rounded = (size + 511) & ~(size_t)511;

    count(&tally.live_bytes, by > 0 ? rounded : -rounded);
    count(&tally.live_blocks, (size_t)by);
}

/* What was planted, or what a capture forbids: the driver's three answers. */
static bool excused(int result, struct moment before) {
    bool forbidden = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
                     result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    if (forbidden && captured_since(before))
        return true;
    return (result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_OPERATING_SYSTEM) && faulted_since(before);
}

/* The runtime keeps an error until it is asked, once. */
static void check_last(int result, bool runtime) {
    int last;

    if (!runtime)
        return;
    last = (int)cudaGetLastError();
    if (last != result)
        wrong("a call of the runtime answered %d, but its last error is %d", result, last);
}

static void failed(struct block *block, int result, bool runtime, struct moment before) {
    if (block->address)
        wrong("an allocation of %zu bytes failed with %d, but gave %#llx", block->size, result, block->address);
    check_last(result, runtime);
    count_live(block->size, -1);
    count(result == CUDA_ERROR_OUT_OF_MEMORY ? &tally.out_of_memory : &tally.other_failures, 1);
    if (excused(result, before))
        return;
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        wrong("an allocation of %zu bytes failed with %d", block->size, result);
    if (!captured_since(before) && promised(block->size))
        wrong("out of memory: %zu bytes were refused with %zu of %zu bytes live in %zu blocks", block->size,
              read_count(&tally.live_bytes), soak.room, read_count(&tally.live_blocks));
}

static int pitched(struct block *block, bool runtime, size_t width) {
    size_t height = block->size / 512, pitch = 0;
    int result = runtime ? (int)cudaMallocPitch((void **)&block->address, &pitch, width, height)
                         : (int)cuMemAllocPitch(&block->address, &pitch, width, height, 4);

    if (result == CUDA_SUCCESS && pitch != (width + 511) / 512 * 512)
        wrong("a width of %zu got a pitch of %zu", width, pitch);
    return result;
}

static void allocate_bytes(struct thread *t, struct block *block, size_t size, bool unused) {
    bool runtime = draw(t, 2), ordered = draw(t, 3) == 0, pitch = draw(t, 8) == 0;
    size_t width = 1 + draw(t, 512);
    int lane = any_lane(t), first = any_lane(t), result;
    struct moment before = moment();
    CUstream stream = lane_of(t, lane)->stream;

    *block = (struct block){
        .size = size, .unused = unused, .kind = ordered ? ORDERED : SYNC, .place = t->lanes[lane].place, .lane = lane};
    if (pitch && !ordered && size >= 512)
        block->size &= ~(size_t)511;
    count_live(block->size, 1);
    if (ordered && runtime)
        result = (int)cudaMallocAsync((void **)&block->address, size, stream);
    else if (ordered)
        result = (int)cuMemAllocAsync(&block->address, size, stream);
    else if (pitch && size >= 512)
        result = pitched(block, runtime, width);
    else if (runtime)
        result = (int)cudaMalloc((void **)&block->address, size);
    else
        result = (int)cuMemAlloc(&block->address, size);
    if (result != CUDA_SUCCESS) {
        failed(block, result, runtime, before);
        *block = (struct block){0};
        return;
    }
    if (!block->address)
        wrong("an allocation of %zu bytes succeeded, but gave no address", size);
    block->id = model_id();
    model_claim(block);
    count(&tally.allocations, 1);
    /* Synchronous memory is anybody's at once: its first use may be on any stream, those of other contexts included. */
    if (!ordered && (t->lanes[first].place == block->place || draw(t, 4) == 0))
        block->lane = first;
    visit_in(t, FIRST_USE, block, NULL);
}

void allocate(struct thread *t, struct block *block) {
    size_t size = draw_size(t);

    allocate_bytes(t, block, size, draw(t, 3) == 0);
}

/* Many allocations and frees with nothing between them, of one size for the most part. */
void burst(struct thread *t) {
    size_t size = (size_t)1 << draw(t, 17);
    bool backwards = draw(t, 2);

    if (size > soak.largest)
        return;
    for (int i = 0; i < soak.slots; i++)
        if (!t->blocks[i].address && draw(t, 8))
            allocate_bytes(t, &t->blocks[i], draw(t, 16) ? size : draw_size(t), true);
    for (int i = 0; i < soak.slots; i++) {
        struct block *block = &t->blocks[backwards ? soak.slots - 1 - i : i];

        if (block->address && block->unused && !block->pinned && draw(t, 8))
            release(t, block);
    }
}

void use(struct thread *t, struct block *block) {
    int lane = any_lane(t);

    if (block->unused)
        return;
    move(t, block, lane);
    if (block->size <= 64 * KIB && draw(t, 2)) /* the same bytes again, by the device itself */
        MUST(cuMemsetD8Async(block->address, (unsigned char)(block->id % 251 + 1), block->size, lane_of(t, lane)->stream));
    visit_in(t, USE, block, NULL);
}

void wait_for_last_use(struct thread *t, struct block *block) {
    atomic_bool done = false;

    visit_in(t, USE, block, &done);
    while (!atomic_load(&done))
        sched_yield();
}

static int free_now(struct thread *t, struct block *block, bool runtime, bool in_order) {
    CUstream stream = lane_of(t, block->lane)->stream;

    if (in_order)
        return runtime ? (int)cudaFreeAsync((void *)block->address, stream) : (int)cuMemFreeAsync(block->address, stream);
    if (draw(t, 8) == 0) /* whichever context is current */
        enter(t, t->lanes[any_lane(t)].place);
    return runtime ? (int)cudaFree((void *)block->address) : (int)cuMemFree(block->address);
}

void release(struct thread *t, struct block *block) {
    bool in_order = block->kind == ORDERED ? draw(t, 16) != 0 : draw(t, 3) == 0, runtime = draw(t, 2), waits;
    struct moment before = moment();
    atomic_bool done = false;
    int lane = in_order && draw(t, 2) ? any_lane(t) : block->lane, result;

    /* cudaFree waits for the memory's own context only. */
    if (t->lanes[lane].place != block->place && (!in_order || !soak.foreign))
        lane = some_lane(t, block->place);
    move(t, block, lane);
    waits = !in_order && block->kind == ORDERED; /* cudaFree of stream-ordered memory waits for nothing: the program does */
    visit_in(t, LAST_USE, block, waits ? &done : NULL);
    while (waits && !atomic_load(&done))
        sched_yield();
    model_release(block);
    result = free_now(t, block, runtime, in_order);
    if (result == CUDA_SUCCESS) {
        if (block->place == OWN && in_order) /* a context must not end under work of another that uses its memory */
            order(t, block->lane, 2 * OWN);
        count_live(block->size, -1);
        count(&tally.frees, 1);
        t->dead[draw(t, DEAD)] = block->address;
        *block = (struct block){0};
        return;
    }
    check_last(result, runtime);
    if (!excused(result, before))
        wrong("the free of block %u (%#llx, %zu bytes) failed with %d", block->id, block->address, block->size, result);
    block->id = model_id(); /* it lives on */
    model_claim(block);
    visit_in(t, FIRST_USE, block, NULL);
}
