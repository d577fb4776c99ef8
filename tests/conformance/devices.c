/*
 * Two devices: whose memory is whose, who may free it, peers, and what old work of one may do to new data of the other.
 *
 * The calls that queue work on a stream are made with that stream's device current, as the runtime asks of kernels.
 */
#include "conform.h"

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */
#define SMALL (64 * KIB)
#define MS 60

static struct {
    cudaStream_t one, two;
    cudaEvent_t event;
    CUcontext primary;
} side[2];

static void on(int device) {
    NEED(cudaSetDevice(device));
}

static int device_now(void) {
    int device = -1;
    NEED(cudaGetDevice(&device));
    return device;
}

/* Both devices' contexts; 0 is current. */
static void start_both(void) {
    for (int i = 1; i >= 0; i--) {
        on(i);
        NEED(cudaStreamCreateWithFlags(&side[i].one, cudaStreamNonBlocking));
        NEED(cudaStreamCreateWithFlags(&side[i].two, cudaStreamNonBlocking));
        NEED(cudaEventCreateWithFlags(&side[i].event, cudaEventDisableTiming));
        NEED_CU(cuCtxGetCurrent(&side[i].primary));
    }
    stream = side[0].one;
}

static void peers(void) {
    for (int i = 1; i >= 0; i--) {
        on(i);
        NEED(cudaDeviceEnablePeerAccess(1 - i, 0));
    }
}

static void *on_device(int device, enum kind kind, size_t size) {
    on(device);
    stream = side[device].one;
    void *p = memory(kind, size);
    stream = side[0].one;
    return p;
}

/* Sees to it that all work of both is over; the device that was current is so again. */
static void finish(void) {
    int device = device_now();
    for (int i = 0; i < 2; i++) {
        on(i);
        NEED(cudaDeviceSynchronize());
    }
    on(device);
}

static bool keeps(const char *p, int value, size_t size) {
    finish();
    return holds(p, value, 4096) && holds(p + size - 4096, value, 4096);
}

static const char *states(void) {
    static char text[40];
    unsigned flags;
    int active[2];
    for (int i = 0; i < 2; i++)
        NEED_CU(cuDevicePrimaryCtxGetState(i, &flags, &active[i]));
    snprintf(text, sizeof text, "active: %d %d", active[0], active[1]);
    return text;
}

/* A program that uses the second device alone is alone there. */
void group_two_only_second(void) {
    void *p;
    size_t a, b;
    struct cudaPointerAttributes attributes;
    begin("cudaSetDevice(1)");
    say_rt(cudaSetDevice(1));
    end();
    begin("cudaFree(NULL)");
    say_rt(cudaFree(NULL));
    say("%s", states());
    end();
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    static const enum kind kinds[] = {MALLOC, PITCH, THREE_D, ASYNC, DRIVER, DRIVER_ASYNC};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        begin("%s", kind_name[kinds[k]]);
        p = memory(kinds[k], SMALL);
        NEED(cudaPointerGetAttributes(&attributes, p));
        NEED(cudaMemGetInfo(&a, &b));
        say("%s,", states());
        say_rt(cudaFree(p));
        say("%s, current: %d", states(), device_now());
        end();
    }
    for (int i = 0; i < 100; i++) {
        NEED(cudaMalloc(&p, MIB));
        NEED(cudaMemset(p, 1, MIB));
        NEED(cudaFree(p));
    }
    line("100 pairs", "%s", states());
}

void group_two_attributes(void) {
    static const enum kind kinds[] = {MALLOC, PITCH, MANAGED, ASYNC, DRIVER, DRIVER_ASYNC};
    start_both();
    for (int device = 0; device < 2; device++) {
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            struct cudaPointerAttributes attributes;
            CUcontext context = NULL;
            CUdeviceptr base;
            size_t size;
            int ordinal = -1;
            void *p = on_device(device, kinds[k], SMALL);
            on(1 - device);
            begin("%s on device %d", kind_name[kinds[k]], device);
            NEED(cudaPointerGetAttributes(&attributes, p));
            NEED_CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)p));
            NEED_CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)p));
            say("device=%d ordinal=%d context=%s", attributes.device, ordinal,
                context == side[device].primary       ? "its"
                : context == side[1 - device].primary ? "the other's"
                : context                             ? "strange"
                                                      : "none");
            CUresult error = cuMemGetAddressRange(&base, &size, (CUdeviceptr)p);
            say("range: %s, current: %d", cu(error), device_now());
            end();
            drop(p);
        }
    }
}

static struct outcome give_on(enum way way, void *p, cudaStream_t on_stream) {
    stream = on_stream;
    struct outcome outcome = give(way, p);
    stream = side[0].one;
    return outcome;
}

/* Freed while the other device is current, and on its stream. */
void group_two_frees(void) {
    static const enum kind kinds[] = {MALLOC, PITCH, MANAGED, DRIVER, ASYNC};
    start_both();
    for (int device = 0; device < 2; device++) {
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            for (int w = 0; w < WAYS; w++) {
                bool ordered = w == FREE_ASYNC || w == MEM_FREE_ASYNC;
                for (int own = 0; own < (ordered ? 2 : 1); own++) {
                    void *p = on_device(device, kinds[k], SMALL);
                    on(1 - device);
                    begin("%s of device %d, %s with the other current%s", kind_name[kinds[k]], device, way_name[w],
                          !ordered ? ""
                          : own    ? ", on its own device's stream"
                                   : ", on the other's stream");
                    say_outcome(give_on(w, p, side[own ? device : 1 - device].one));
                    finish();
                    say("again:");
                    say_outcome(give(FREE, p));
                    say("current: %d", device_now());
                    end();
                }
            }
        }
    }
}

/* The stream says whose the memory is, not what is current. */
void group_two_streams(void) {
    start_both();
    for (int device = 0; device < 2; device++) {
        struct cudaPointerAttributes attributes;
        char *p = NULL;
        on(1 - device);
        begin("cudaMallocAsync on a stream of device %d", device);
        say_rt(cudaMallocAsync((void **)&p, SMALL, side[device].one));
        NEED(cudaPointerGetAttributes(&attributes, p));
        say("device=%d", attributes.device);
        on(device);
        NEED(cudaMemsetAsync(p, 0x61, SMALL, side[device].one));
        say("holds its data: %s", yes_no(keeps(p, 0x61, SMALL)));
        on(1 - device);
        say_rt(cudaFreeAsync(p, side[device].one));
        say("current: %d", device_now());
        end();
        finish();
        begin("cudaMallocAsync on no stream while %d is current", device);
        on(device);
        say_rt(cudaMallocAsync((void **)&p, SMALL, 0));
        NEED(cudaPointerGetAttributes(&attributes, p));
        say("device=%d", attributes.device);
        say_rt(cudaFreeAsync(p, 0));
        end();
        begin("cudaMallocFromPoolAsync, the pool of device %d, a stream of the other", device);
        cudaMemPool_t pool;
        NEED(cudaDeviceGetDefaultMemPool(&pool, device));
        cudaError_t error = cudaMallocFromPoolAsync((void **)&p, SMALL, pool, side[1 - device].one);
        say_rt(error);
        if (error == cudaSuccess) {
            NEED(cudaPointerGetAttributes(&attributes, p));
            say("device=%d", attributes.device);
            say_rt(cudaFreeAsync(p, side[1 - device].one));
        }
        end();
        finish();
    }
    /* Per-device figures. */
    cudaMemPool_t pools[2];
    unsigned long long before[2], after[2];
    void *p;
    for (int i = 0; i < 2; i++) {
        NEED(cudaDeviceGetDefaultMemPool(&pools[i], i));
        NEED(cudaMemPoolGetAttribute(pools[i], cudaMemPoolAttrUsedMemCurrent, &before[i]));
    }
    on(0);
    NEED(cudaMallocAsync(&p, 8 * MIB, side[1].one));
    for (int i = 0; i < 2; i++)
        NEED(cudaMemPoolGetAttribute(pools[i], cudaMemPoolAttrUsedMemCurrent, &after[i]));
    line("8 MiB on a stream of device 1, the pools' used grows by", "%llu %llu MiB", (after[0] - before[0]) / MIB,
         (after[1] - before[1]) / MIB);
    begin("cudaFree of it with device 0 current");
    say_rt(cudaFree(p));
    end();
}

void group_two_reset(void) {
    start_both();
    char *mine = on_device(0, MALLOC, SIZE), *ordered = on_device(0, ASYNC, SIZE), *old = on_device(1, MALLOC, SIZE), *p = NULL;
    on(0);
    NEED(cudaMemset(mine, 0x62, SIZE));
    NEED(cudaMemset(ordered, 0x63, SIZE));
    on(1);
    begin("cudaDeviceReset of device 1");
    say_rt(cudaDeviceReset());
    say("%s", states());
    end();
    on(0);
    begin("device 0's memory");
    say("holds its data: %s %s", yes_no(holds(mine, 0x62, SIZE)), yes_no(holds(ordered, 0x63, SIZE)));
    end();
    begin("cudaFree of device 1's memory");
    say_rt(cudaFree(old));
    end();
    begin("cudaFree of device 0's memory");
    say_rt(cudaFree(mine));
    say_rt(cudaFreeAsync(ordered, side[0].one));
    end();
    on(1);
    begin("device 1 again");
    say_rt(cudaMalloc((void **)&p, SIZE));
    NEED(cudaMemset(p, 0x64, SIZE));
    say("holds its data: %s", yes_no(holds(p, 0x64, SIZE)));
    say_rt(cudaFree(p));
    say("%s", states());
    end();
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
                    void *p = on_device(owner, kinds[k], SMALL);
                    on(worker);
                    NEED(cudaMemsetAsync(p, 1, SMALL, side[worker].one));
                    NEED(cudaStreamSynchronize(side[worker].one));
                    begin("free of %s of device %d beside work on device %d, device %d current", kind_name[kinds[k]], owner,
                          worker, freer);
                    busy(side[worker].one);
                    on(freer);
                    cudaError_t error = cudaFree(p);
                    say("%s, waits: %s", rt(error), waited());
                    end();
                    finish();
                }
            }
        }
    }
}

/* The owner's stream waits for the work on the block, so that the owner's cudaFree comes after it; the next owner writes from
 * anywhere. */
static void recycled(int owner, int worker, int writer, int freer) {
    char *old = on_device(owner, MALLOC, SIZE), *copy[3];
    bool intact = true;
    on(worker);
    occupy(side[worker].one, MS);
    NEED(cudaMemsetAsync(old, 0x11, SIZE, side[worker].one));
    NEED(cudaEventRecord(side[worker].event, side[worker].one));
    on(owner);
    NEED(cudaStreamWaitEvent(side[owner].two, side[worker].event, 0));
    on(freer);
    begin("block of device %d, work of device %d, freed with device %d current, next work of device %d", owner, worker, freer,
          writer);
    say_rt(cudaFree(old));
    for (size_t i = 0; i < COUNT_OF(copy); i++) {
        on(owner);
        NEED(cudaMalloc((void **)&copy[i], SIZE));
        on(writer);
        NEED(cudaMemsetAsync(copy[i], 0x22, SIZE, side[writer].two));
    }
    on(owner);
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        intact &= keeps(copy[i], 0x22, SIZE);
    say("new data intact: %s", yes_no(intact));
    end();
    for (size_t i = 0; i < COUNT_OF(copy); i++)
        drop(copy[i]);
}

/* The same in stream order: the next owner's stream passes the block on to the other device, which copies into it. */
static void recycled_in_order(int owner) {
    char *from = on_device(1 - owner, MALLOC, SIZE), *old, *next;
    on(1 - owner);
    NEED(cudaMemset(from, 0x33, SIZE));
    finish();
    on(owner);
    NEED(cudaMallocAsync((void **)&old, SIZE, side[owner].one));
    occupy(side[owner].one, MS);
    NEED(cudaMemsetAsync(old, 0x11, SIZE, side[owner].one));
    begin("stream-ordered block of device %d, next work of the other", owner);
    say_rt(cudaFreeAsync(old, side[owner].one));
    say_rt(cudaMallocAsync((void **)&next, SIZE, side[owner].two));
    NEED(cudaEventRecord(side[owner].event, side[owner].two));
    on(1 - owner);
    NEED(cudaStreamWaitEvent(side[1 - owner].one, side[owner].event, 0));
    say_rt(cudaMemcpyPeerAsync(next, owner, from, 1 - owner, SIZE, side[1 - owner].one));
    say("new data intact: %s", yes_no(keeps(next, 0x33, SIZE)));
    say_rt(cudaFree(next));
    end();
    drop(from);
}

void group_two_order(void) {
    start_both();
    peers();
    for (int owner = 0; owner < 2; owner++)
        for (int worker = 0; worker < 2; worker++)
            for (int writer = 0; writer < 2; writer++)
                for (int freer = 0; freer < 2; freer++)
                    recycled(owner, worker, writer, freer);
    recycled_in_order(0);
    recycled_in_order(1);
}
