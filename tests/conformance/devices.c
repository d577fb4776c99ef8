/*
 * Two devices: which is used at all, whose memory is whose, who may free it, and what a reset of one does to the other.
 *
 * The calls that queue work on a stream are made with that stream's device current, as the runtime asks of kernels.
 */
#include "conform.h"

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */
#define SMALL (64 * KIB)

struct device_side side[2];

void on(int device) {
    NEED(cudaSetDevice(device));
}

int device_now(void) {
    int device = -1;
    NEED(cudaGetDevice(&device));
    return device;
}

/* Both devices' contexts; 0 is current. */
void start_both(void) {
    for (int i = 1; i >= 0; i--) {
        on(i);
        NEED(cudaStreamCreateWithFlags(&side[i].one, cudaStreamNonBlocking));
        NEED(cudaStreamCreateWithFlags(&side[i].two, cudaStreamNonBlocking));
        NEED(cudaEventCreateWithFlags(&side[i].event, cudaEventDisableTiming));
        NEED_CU(cuCtxGetCurrent(&side[i].primary));
    }
    stream = side[0].one;
}

void *on_device(int device, enum kind kind, size_t size) {
    on(device);
    stream = side[device].one;
    void *p = memory(kind, size);
    stream = side[0].one;
    return p;
}

/* Sees to it that all work of both is over; the device that was current is so again. */
void finish(void) {
    int device = device_now();
    for (int i = 0; i < 2; i++) {
        on(i);
        NEED(cudaDeviceSynchronize());
    }
    on(device);
}

bool keeps(const char *p, int value, size_t size) {
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
