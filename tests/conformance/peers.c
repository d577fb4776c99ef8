/*
 * Two devices as peers: access and its errors, copies, whose work a free waits for, and what old work of one may do to new data
 * of the other.
 */
#include "conform.h"

#include <pthread.h>

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */
#define SMALL (64 * KIB)
#define MS 60

static void peers(void) {
    for (int i = 1; i >= 0; i--) {
        on(i);
        NEED(cudaDeviceEnablePeerAccess(1 - i, 0));
    }
}

void group_two_peer_codes(void) {
    int can[4] = {-1, -1, -1, -1};
    start_both();
    for (int i = 0; i < 4; i++)
        NEED(cudaDeviceCanAccessPeer(&can[i], i / 2, i % 2));
    line("cudaDeviceCanAccessPeer, 0 0, 0 1, 1 0, 1 1", "%d %d %d %d", can[0], can[1], can[2], can[3]);
    static const struct {
        const char *name;
        int peer;
        unsigned flags;
    } tries[] = {{"enable itself", 0, 0}, {"enable device 99", 99, 0}, {"enable with flags", 1, 1}};
    for (size_t i = 0; i < COUNT_OF(tries); i++) {
        begin("%s", tries[i].name);
        say_rt(cudaDeviceEnablePeerAccess(tries[i].peer, tries[i].flags));
        end();
    }
    begin("disable before");
    say_rt(cudaDeviceDisablePeerAccess(1));
    end();
    begin("enable, twice");
    say_rt(cudaDeviceEnablePeerAccess(1, 0));
    say_rt(cudaDeviceEnablePeerAccess(1, 0));
    end();
    begin("the driver enables it, too");
    say_cu(cuCtxEnablePeerAccess(side[1].primary, 0));
    end();
    begin("disable, twice");
    say_rt(cudaDeviceDisablePeerAccess(1));
    say_rt(cudaDeviceDisablePeerAccess(1));
    end();
    begin("the driver: enable, twice, disable, twice");
    say_cu(cuCtxEnablePeerAccess(side[1].primary, 0));
    say_cu(cuCtxEnablePeerAccess(side[1].primary, 0));
    say_cu(cuCtxDisablePeerAccess(side[1].primary));
    say_cu(cuCtxDisablePeerAccess(side[1].primary));
    end();
    line("the driver: the current one", "%s", cu(cuCtxEnablePeerAccess(side[0].primary, 0)));
    line("the driver: with flags", "%s", cu(cuCtxEnablePeerAccess(side[1].primary, 1)));
    line("the driver: none", "%s", cu(cuCtxEnablePeerAccess(NULL, 0)));
    NEED_CU(cuCtxSetCurrent(NULL));
    line("the driver: with no context current", "%s", cu(cuCtxEnablePeerAccess(side[1].primary, 0)));
}

static void copies(const char *when) {
    char *here = on_device(0, MALLOC, SIZE), *there = on_device(1, MALLOC, SIZE);
    on(0);
    NEED(cudaMemset(here, 0x65, SIZE));
    NEED(cudaDeviceSynchronize());
    begin("%s, cudaMemcpyPeer", when);
    say_rt(cudaMemcpyPeer(there, 1, here, 0, SIZE));
    say("right: %s", yes_no(keeps(there, 0x65, SIZE)));
    end();
    on(1);
    NEED(cudaMemset(there, 0x66, SIZE));
    NEED(cudaDeviceSynchronize());
    begin("%s, cudaMemcpyPeerAsync", when);
    say_rt(cudaMemcpyPeerAsync(here, 0, there, 1, SIZE, side[1].one));
    say("right: %s", yes_no(keeps(here, 0x66, SIZE)));
    end();
    on(0);
    NEED(cudaMemset(here, 0x67, SIZE));
    NEED(cudaDeviceSynchronize());
    begin("%s, cudaMemcpyAsync", when);
    say_rt(cudaMemcpyAsync(there, here, SIZE, cudaMemcpyDefault, side[0].one));
    say("right: %s", yes_no(keeps(there, 0x67, SIZE)));
    end();
    begin("%s, cuMemcpyPeer", when);
    NEED(cudaMemset(here, 0x68, SIZE));
    NEED(cudaDeviceSynchronize());
    say_cu(cuMemcpyPeer((CUdeviceptr)there, side[1].primary, (CUdeviceptr)here, side[0].primary, SIZE));
    say("right: %s", yes_no(keeps(there, 0x68, SIZE)));
    end();
    drop(here);
    drop(there);
}

static void reached(char *p, const char *name) {
    on(0);
    begin("%s", name);
    say_rt(cudaMemsetAsync(p, 0x69, SIZE, side[0].one));
    on(1);
    say("right: %s", yes_no(keeps(p, 0x69, SIZE)));
    end();
}

void group_two_peer_memory(void) {
    start_both();
    copies("no access");
    char *before = on_device(1, MALLOC, SIZE), *driver = on_device(1, DRIVER, SIZE), *after, *ordered;
    char *gone = on_device(1, MALLOC, SIZE);
    drop(gone); /* so that an allocator has idle memory of then */
    on(0);
    NEED(cudaDeviceEnablePeerAccess(1, 0));
    reached(before, "access enabled after cudaMalloc, memset by the other device");
    reached(driver, "access enabled after cuMemAlloc, memset by the other device");
    after = on_device(1, MALLOC, SIZE);
    reached(after, "access enabled before cudaMalloc, memset by the other device");
    copies("access");
    on(0);
    begin("freed by the other device");
    say_rt(cudaFree(before));
    say_rt(cudaFree(after));
    end();
    NEED(cudaDeviceDisablePeerAccess(1));
    copies("access disabled");

    /* A pool's memory has access of its own. */
    cudaMemPool_t pool;
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    enum cudaMemAccessFlags flags = 99;
    NEED(cudaDeviceGetDefaultMemPool(&pool, 1));
    NEED(cudaMemPoolGetAccess(&flags, pool, &access.location));
    line("the pool's access at first", "%d", (int)flags);
    ordered = on_device(1, ASYNC, SIZE);
    access.flags = cudaMemAccessFlagsProtReadWrite;
    begin("cudaMemPoolSetAccess");
    say_rt(cudaMemPoolSetAccess(pool, &access, 1));
    end();
    NEED(cudaMemPoolGetAccess(&flags, pool, &access.location));
    line("the pool's access then", "%d", (int)flags);
    char *later = on_device(1, ASYNC, SIZE);
    reached(later, "access set before cudaMallocAsync, memset by the other device");
    on(1);
    begin("cudaFreeAsync of both");
    say_rt(cudaFreeAsync(ordered, side[1].one));
    say_rt(cudaFreeAsync(later, side[1].one));
    end();
}

/* Which device's work a free waits for. What it frees is not used by that work any more. */
void group_two_waits(void) {
    start_both();
    peers();
    static const enum kind kinds[] = {MALLOC, DRIVER};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (int owner = 0; owner < 2; owner++) {
            for (int worker = 0; worker < 2; worker++) {
                for (int freer = 0; freer < 2; freer++) {
                    const char *waits;
                    cudaError_t error;
                    do {
                        void *p = on_device(owner, kinds[k], SMALL);
                        on(worker);
                        NEED(cudaMemsetAsync(p, 1, SMALL, side[worker].one));
                        NEED(cudaStreamSynchronize(side[worker].one));
                        busy(side[worker].one);
                        on(freer);
                        error = cudaFree(p);
                        waits = waited();
                        finish();
                    } while (unsure());
                    begin("free of %s of device %d beside work on device %d, device %d current", kind_name[kinds[k]], owner,
                          worker, freer);
                    say("%s, waits: %s", rt(error), waits);
                    end();
                }
            }
        }
    }
    static const enum kind freed[] = {MALLOC, DRIVER, ASYNC};
    for (size_t k = 0; k < COUNT_OF(freed); k++) {
        for (int owner = 0; owner < 2; owner++) {
            for (int worker = 0; worker < 2; worker++) {
                const char *waits;
                cudaError_t error;
                do {
                    void *p = on_device(owner, freed[k], SMALL);
                    on(worker);
                    busy(side[worker].one);
                    error = cudaFreeAsync(p, side[worker].one);
                    waits = waited();
                    finish();
                } while (unsure());
                begin("cudaFreeAsync of %s of device %d beside work on device %d's stream", kind_name[freed[k]], owner, worker);
                say("%s, waits: %s", rt(error), waits);
                end();
            }
        }
    }
}

enum { NEXT = 3 }; /* the next owner's blocks: the freed one is among them if it may be used again */

/* Ends the line with whether the next owner's data is as it was written, once all work is done; frees it. */
static void say_intact(char *const copy[NEXT]) {
    bool intact = true;
    for (size_t i = 0; i < NEXT; i++)
        intact &= keeps(copy[i], 0x22, SIZE);
    say("new data intact: %s", yes_no(intact));
    end();
    for (size_t i = 0; i < NEXT; i++)
        drop(copy[i]);
}

static uint32_t *gate, turns;

static void *open_gate(void *turn) {
    sleep_ms(MS);
    __atomic_store_n(gate, (uint32_t)(uintptr_t)turn, __ATOMIC_RELEASE);
    return NULL;
}

/* The stream stands still for MS, on the device itself. */
static void stand_still(cudaStream_t stream) {
    pthread_t thread;

    if (!gate) {
        NEED(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocPortable));
        *gate = 0;
    }
    NEED_CU(cuStreamWaitValue32(stream, (CUdeviceptr)gate, ++turns, CU_STREAM_WAIT_VALUE_GEQ));
    if (pthread_create(&thread, NULL, open_gate, (void *)(uintptr_t)turns) != 0)
        abort();
    pthread_detach(thread);
}

/* The owner's own work on the block comes late, and the next owner writes from anywhere. (For the other device's, the driver's cudaFree does not wait;
 * tests/programs/peer_order.c has that.) */
static void recycled(int owner, int writer, int freer) {
    char *old = on_device(owner, MALLOC, SIZE), *copy[NEXT];
    stand_still(side[owner].one);
    NEED(cudaMemsetAsync(old, 0x11, SIZE, side[owner].one));
    on(freer);
    begin("block of device %d, its work, freed with device %d current, next work of device %d", owner, freer, writer);
    say_rt(cudaFree(old));
    for (size_t i = 0; i < NEXT; i++) {
        on(owner);
        NEED(cudaMalloc((void **)&copy[i], SIZE));
        on(writer);
        NEED(cudaMemsetAsync(copy[i], 0x22, SIZE, side[writer].two));
    }
    on(owner);
    say_intact(copy);
}

/* Freed in the order of the other device's stream, whose work comes late. */
static void freed_by_other(int owner, enum kind kind) {
    int other = 1 - owner;
    char *from = on_device(other, MALLOC, SIZE), *old = on_device(owner, kind, SIZE), *copy[NEXT];
    on(other);
    NEED(cudaMemset(from, 0x11, SIZE));
    finish();
    stand_still(side[other].one);
    begin("%s of device %d freed in the order of the other's stream", kind_name[kind], owner);
    say_rt(cudaMemcpyPeerAsync(old, owner, from, other, SIZE, side[other].one));
    say_rt(cudaFreeAsync(old, side[other].one));
    on(owner);
    for (size_t i = 0; i < NEXT; i++) {
        NEED(kind == ASYNC ? cudaMallocAsync((void **)&copy[i], SIZE, side[owner].two) : cudaMalloc((void **)&copy[i], SIZE));
        NEED(cudaMemsetAsync(copy[i], 0x22, SIZE, side[owner].two));
    }
    say_intact(copy);
    drop(from);
}

void group_two_order(void) {
    start_both();
    peers();
    for (int owner = 0; owner < 2; owner++) {
        for (int writer = 0; writer < 2; writer++)
            for (int freer = 0; freer < 2; freer++)
                recycled(owner, writer, freer);
        freed_by_other(owner, MALLOC);
        freed_by_other(owner, ASYNC);
    }
}
