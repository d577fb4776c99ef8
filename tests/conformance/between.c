/*
 * Two contexts of one device: old work of one never reaches new data of the other, whosever the block, the work, the free and the
 * next work are.
 *
 * They reach each other's memory by copies only.
 */
#include "conform.h"

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */

static struct {
    const char *name;
    CUcontext context;
    CUstream one, two;
    CUevent event;
    CUdeviceptr old_data, new_data;
} part[2] = {{.name = "primary"}, {.name = "new"}};

static void CUDART_CB a_while(void *unused) {
    (void)unused;
    sleep_ms(60);
}

static void become(int one) {
    NEED_CU(cuCtxSetCurrent(part[one].context));
}

static void finish_all(void) {
    for (int i = 0; i < 2; i++) {
        become(i);
        NEED_CU(cuCtxSynchronize());
    }
}

/* Into a block of the owner's; another context reaches it by a copy. */
static void fill(int owner, CUdeviceptr block, int writer, bool fresh, CUstream on) {
    become(writer);
    if (writer == owner)
        NEED_CU(cuMemsetD8Async(block, fresh ? 0x22 : 0x11, SIZE, on));
    else
        NEED_CU(cuMemcpyPeerAsync(block, part[owner].context, fresh ? part[writer].new_data : part[writer].old_data,
                                  part[writer].context, SIZE, on));
}

enum { NEXT = 3 }; /* the next owner's blocks: the freed one is among them if it may be used again */

/* Ends the line with whether the next owner's data is as it was written, once all work is done; frees it. */
static void say_intact(int owner, const CUdeviceptr copy[NEXT]) {
    bool intact = true;
    finish_all();
    become(owner);
    for (size_t i = 0; i < NEXT; i++)
        intact &= holds((void *)copy[i], 0x22, 4096) && holds((void *)(copy[i] + SIZE - 4096), 0x22, 4096);
    say("new data intact: %s", yes_no(intact));
    end();
    for (size_t i = 0; i < NEXT; i++)
        NEED_CU(cuMemFree(copy[i]));
}

/* The owner's stream waits for the work on the block, so that the owner's cuMemFree comes after it; the next owner's work is
 * whosever. */
static void recycled_between(int owner, int worker, int writer, int freer) {
    CUdeviceptr old, copy[NEXT];
    become(owner);
    NEED_CU(cuMemAlloc(&old, SIZE));
    NEED_CU(cuLaunchHostFunc(part[worker].one, a_while, NULL));
    fill(owner, old, worker, false, part[worker].one);
    NEED_CU(cuEventRecord(part[worker].event, part[worker].one));
    NEED_CU(cuStreamWaitEvent(part[owner].two, part[worker].event, 0));
    become(freer);
    begin("%s's block, work of %s, freed in %s, next work of %s", part[owner].name, part[worker].name, part[freer].name,
          part[writer].name);
    say_cu(cuMemFree(old));
    for (size_t i = 0; i < NEXT; i++) {
        become(owner);
        NEED_CU(cuMemAlloc(&copy[i], SIZE));
        fill(owner, copy[i], writer, true, part[writer].two);
    }
    say_intact(owner, copy);
}

/* Freed in the order of the other's stream, which natively waits for nothing. */
static void freed_by_other(int owner, bool ordered) {
    int other = 1 - owner;
    CUdeviceptr old, copy[NEXT];
    become(owner);
    NEED_CU(ordered ? cuMemAllocAsync(&old, SIZE, part[owner].one) : cuMemAlloc(&old, SIZE));
    NEED_CU(cuCtxSynchronize());
    become(other);
    busy(part[other].one);
    NEED_CU(cuLaunchHostFunc(part[other].one, a_while, NULL));
    fill(owner, old, other, false, part[other].one);
    begin("%s's %s freed in the order of %s's stream", part[owner].name, ordered ? "cuMemAllocAsync" : "cuMemAlloc",
          part[other].name);
    CUresult error = cuMemFreeAsync(old, part[other].one);
    say("%s waits: %s", cu(error), waited());
    become(owner);
    for (size_t i = 0; i < NEXT; i++) {
        NEED_CU(ordered ? cuMemAllocAsync(&copy[i], SIZE, part[owner].two) : cuMemAlloc(&copy[i], SIZE));
        NEED_CU(cuMemsetD8Async(copy[i], 0x22, SIZE, part[owner].two));
    }
    say_intact(owner, copy);
}

/* Old work of one context never reaches the new data of another on the same device. */
void group_contexts_order(void) {
    start();
    NEED_CU(cuCtxGetCurrent(&part[0].context));
    part[1].context = new_context();
    for (int i = 0; i < 2; i++) {
        become(i);
        NEED_CU(cuStreamCreate(&part[i].one, CU_STREAM_NON_BLOCKING));
        NEED_CU(cuStreamCreate(&part[i].two, CU_STREAM_NON_BLOCKING));
        NEED_CU(cuEventCreate(&part[i].event, CU_EVENT_DISABLE_TIMING));
        NEED_CU(cuMemAlloc(&part[i].old_data, SIZE));
        NEED_CU(cuMemAlloc(&part[i].new_data, SIZE));
        NEED_CU(cuMemsetD8(part[i].old_data, 0x11, SIZE));
        NEED_CU(cuMemsetD8(part[i].new_data, 0x22, SIZE));
        NEED_CU(cuCtxSynchronize());
    }
    for (int all = 0; all < 16; all++)
        recycled_between(all >> 3 & 1, all >> 2 & 1, all >> 1 & 1, all & 1);
    for (int all = 0; all < 4; all++)
        freed_by_other(all >> 1 & 1, all & 1);
}
