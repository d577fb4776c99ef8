/*
 * Contexts: the calls before there is one, threads without one, several on one device, one that is gone, and a forked child.
 */
#include "conform.h"

#include <signal.h>
#include <sys/wait.h>

#define CASE(name, call)                                                                                                         \
    if (wanted())                                                                                                                \
        line(name, "%s", cu(call));

/* The runtime must stay out of this one, as it would initialise the driver. */
void group_uninitialised(void) {
    CUdeviceptr d = 0;
    size_t a, b;
    unsigned type;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CASE("cuMemAlloc", cuMemAlloc(&d, 64))
    CASE("cuMemAlloc(0)", cuMemAlloc(&d, 0))
    CASE("cuMemAlloc(NULL)", cuMemAlloc(NULL, 64))
    CASE("cuMemFree(0)", cuMemFree(0))
    CASE("cuMemFree", cuMemFree(0x1234))
    CASE("cuMemAllocPitch", cuMemAllocPitch(&d, &a, 64, 2, 4))
    CASE("cuMemAllocManaged", cuMemAllocManaged(&d, 64, CU_MEM_ATTACH_GLOBAL))
    CASE("cuMemAllocAsync", cuMemAllocAsync(&d, 64, 0))
    CASE("cuMemFreeAsync(0)", cuMemFreeAsync(0, 0))
    CASE("cuMemFreeAsync", cuMemFreeAsync(0x1234, 0))
    CASE("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&d, 64, NULL, 0))
    CASE("cuMemGetInfo", cuMemGetInfo(&a, &b))
    CASE("cuMemGetAddressRange", cuMemGetAddressRange(&d, &a, 0x1234))
    CASE("cuPointerGetAttribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&type))
    CASE("cuMemCreate", cuMemCreate(&handle, 2 * MIB, &properties, 0))
    CASE("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0))
}

static const char *context_now(void) {
    CUcontext current = NULL;
    CUresult error = cuCtxGetCurrent(&current);
    return error != CUDA_SUCCESS ? cu(error) : current ? "yes" : "no";
}

static void say_state(void) {
    unsigned flags;
    int active = -1;
    CUresult error = cuDevicePrimaryCtxGetState(0, &flags, &active);
    say("context current: %s, primary: %s %d", context_now(), cu(error), active);
}

/* A call that comes first in its process may be there to bind the context. */
void group_first_free(void) {
    begin("cudaFree(NULL)");
    say_rt(cudaFree(NULL));
    say_state();
    end();
}

void group_first_malloc_zero(void) {
    void *p = KEPT;
    begin("cudaMalloc(0)");
    say_rt(cudaMalloc(&p, 0));
    say("%s", pointer(p));
    say_state();
    end();
}

void group_first_malloc_null(void) {
    begin("cudaMalloc(NULL)");
    say_rt(cudaMalloc(NULL, 64));
    say_state();
    end();
    begin("cudaFree of nobody's");
    say_rt(cudaFree((void *)0x1234));
    say_state();
    end();
}

void group_first_pointer_query(void) {
    struct cudaPointerAttributes attributes;
    begin("cudaPointerGetAttributes of the stack");
    say_rt(cudaPointerGetAttributes(&attributes, &attributes));
    say_state();
    end();
    void *p = KEPT;
    begin("cudaMallocAsync(0)");
    say_rt(cudaMallocAsync(&p, 0, 0));
    say("%s", pointer(p));
    say_state();
    end();
}

struct old {
    void *sync, *other, *async, *managed;
};

static void driver_calls(void *argument) {
    struct old *old = argument;
    CUdeviceptr d = (CUdeviceptr)KEPT;
    size_t a, b;
    unsigned type = 9;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    line("a context is current", "%s", context_now());
    CUresult error = cuMemAlloc(&d, 64);
    line("cuMemAlloc", "%s %s", cu(error), pointer((void *)d));
    line("cuMemAlloc(0)", "%s", cu(cuMemAlloc(&d, 0)));
    line("cuMemAlloc(NULL)", "%s", cu(cuMemAlloc(NULL, 64)));
    line("cuMemAlloc(SIZE_MAX)", "%s", cu(cuMemAlloc(&d, SIZE_MAX)));
    line("cuMemAllocPitch", "%s", cu(cuMemAllocPitch(&d, &a, 64, 2, 4)));
    line("cuMemAllocManaged", "%s", cu(cuMemAllocManaged(&d, 64, CU_MEM_ATTACH_GLOBAL)));
    d = 0;
    error = cuMemAllocAsync(&d, 64, stream);
    line("cuMemAllocAsync(stream)", "%s %s", cu(error), pointer((void *)d));
    if (d)
        line("cuMemFreeAsync(stream) of it", "%s", cu(cuMemFreeAsync(d, stream)));
    line("cuMemAllocAsync(stream 0)", "%s", cu(cuMemAllocAsync(&d, 64, 0)));
    line("cuMemFreeAsync(stream 0)", "%s", cu(cuMemFreeAsync((CUdeviceptr)old->async, 0)));
    line("cuMemFreeAsync(0, stream 0)", "%s", cu(cuMemFreeAsync(0, 0)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    line("cuMemGetAddressRange", "%s", cu(cuMemGetAddressRange(&d, &a, (CUdeviceptr)old->sync)));
    error = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)old->sync);
    line("cuPointerGetAttribute", "%s %u", cu(error), type);
    error = cuMemCreate(&handle, 2 * MIB, &properties, 0);
    line("cuMemCreate", "%s", cu(error));
    if (error == CUDA_SUCCESS)
        cuMemRelease(handle);
    line("cuMemFree(0)", "%s", cu(cuMemFree(0)));
    line("cuMemFree of nobody's", "%s", cu(cuMemFree(0x1234)));
    line("cuMemFree", "%s", cu(cuMemFree((CUdeviceptr)old->sync)));
    line("cuMemFree again", "%s", cu(cuMemFree((CUdeviceptr)old->sync)));
    line("cuMemFree of managed memory", "%s", cu(cuMemFree((CUdeviceptr)old->managed)));
    line("cuMemFree of stream-ordered memory", "%s", cu(cuMemFree((CUdeviceptr)old->async)));
    line("a context is current at the end", "%s", context_now());
    void *p = KEPT;
    begin("then cudaMalloc");
    say_rt(cudaMalloc(&p, 64));
    say("%s, context current: %s", pointer(p), context_now());
    end();
    drop(p);
    line("then cuMemAlloc", "%s", cu(cuMemAlloc(&d, 64)));
}

static void runtime_frees(void *argument) {
    struct old *old = argument;
    begin("cudaFree in another new thread");
    say_rt(cudaFree(old->other));
    say("context current: %s", context_now());
    end();
}

static struct old old_memory(void) {
    return (struct old){memory(MALLOC, 4096), memory(MALLOC, 4096), memory(ASYNC, 4096), memory(MANAGED, 4096)};
}

void group_no_context(void) {
    start();
    struct old old = old_memory();
    in_thread(driver_calls, &old);
    in_thread(runtime_frees, &old);
}

CUcontext new_context(void) {
    CUcontext context;
    NEED_CU(cuCtxCreate(&context, NULL, 0, 0));
    return context;
}

/* Two contexts on one device: memory belongs to one, and can be freed from the other. */
void group_other_context(void) {
    start();
    struct old old = old_memory();
    CUdeviceptr from[3];
    CUcontext primary, other, owner = NULL;
    size_t a, b;
    NEED_CU(cuCtxGetCurrent(&primary));
    other = new_context();
    line("the new one is current", "%s", context_now());
    line("cuMemAlloc in the new context", "%s", cu(cuMemAlloc(&from[0], 4096)));
    NEED_CU(cuMemAlloc(&from[1], 4096));
    NEED_CU(cuMemAlloc(&from[2], 4096));
    NEED_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, from[0]));
    line("memory of the new context belongs to", "%s", owner == other ? "it" : owner == primary ? "the primary" : "neither");
    NEED_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)old.other));
    line("memory of the old context belongs to", "%s", owner == other ? "the new" : owner == primary ? "the primary" : "neither");
    line("cuMemGetAddressRange of the old context's", "%s", cu(cuMemGetAddressRange(&from[2], &a, (CUdeviceptr)old.other)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    line("cuMemFree of the old context's", "%s", cu(cuMemFree((CUdeviceptr)old.sync)));
    line("cuMemFree of the old context's managed", "%s", cu(cuMemFree((CUdeviceptr)old.managed)));
    line("cuMemFree of the old context's stream-ordered", "%s", cu(cuMemFree((CUdeviceptr)old.async)));
    void *p = KEPT;
    begin("cudaMalloc");
    say_rt(cudaMalloc(&p, 64));
    say("%s", pointer(p));
    if (p && p != KEPT) {
        NEED_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)p));
        say("belongs to %s", owner == other ? "the new context" : owner == primary ? "the primary" : "neither");
    }
    end();
    begin("cudaFree of the old context's");
    say_rt(cudaFree(old.other));
    end();
    CUstream here;
    CUdeviceptr d = 0;
    NEED_CU(cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    line("cuMemAllocAsync here", "%s", cu(cuMemAllocAsync(&d, 64, here)));
    line("cuMemFreeAsync of it on the old context's stream", "%s", cu(cuMemFreeAsync(d, stream)));
    line("cuMemAllocAsync on the old context's stream", "%s", cu(cuMemAllocAsync(&d, 64, stream)));
    line("cuMemFreeAsync of it here", "%s", cu(cuMemFreeAsync(d, here)));
    line("cuMemFreeAsync of the new context's on the old context's stream", "%s", cu(cuMemFreeAsync(from[0], stream)));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuMemFree of the new context's", "%s", cu(cuMemFree(from[1])));
    line("the same again", "%s", cu(cuMemFree(from[1])));
    NEED_CU(cuCtxSetCurrent(NULL));
    line("cuMemFree without a context of the runtime's block", "%s", cu(cuMemFree((CUdeviceptr)p)));
    NEED_CU(cuCtxSetCurrent(primary));
    NEED_CU(cuCtxDestroy(other));
}

void group_context_destroyed(void) {
    start();
    CUcontext primary, other;
    CUdeviceptr kept, d, mine = (CUdeviceptr)memory(MALLOC, 4096);
    CUdeviceptr managed;
    size_t a, b;
    NEED_CU(cuCtxGetCurrent(&primary));
    other = new_context();
    NEED_CU(cuMemAlloc(&kept, 4096));
    NEED_CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    line("cuCtxDestroy of the current one", "%s", cu(cuCtxDestroy(other)));
    CUcontext now = NULL;
    NEED_CU(cuCtxGetCurrent(&now));
    line("current then", "%s", now == primary ? "the primary" : now == other ? "the destroyed" : now ? "another" : "none");
    line("cuMemFree of its memory", "%s", cu(cuMemFree(kept)));
    line("cuMemFree of its managed memory", "%s", cu(cuMemFree(managed)));
    line("cuMemGetAddressRange of its memory", "%s", cu(cuMemGetAddressRange(&d, &a, kept)));
    line("cuMemFree of the primary's", "%s", cu(cuMemFree(mine)));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuMemAlloc in the primary", "%s", cu(cuMemAlloc(&d, 64)));
    other = new_context();
    line("a second context, cuMemAlloc", "%s", cu(cuMemAlloc(&d, 4096)));
    NEED_CU(cuCtxSetCurrent(primary));
    line("cuCtxDestroy of one that is not current", "%s", cu(cuCtxDestroy(other)));
    line("cuMemFree of its memory then", "%s", cu(cuMemFree(d)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
}

static void after_reset(const struct old *old) {
    size_t a, b;
    CUdeviceptr d = (CUdeviceptr)KEPT;
    struct cudaPointerAttributes attributes;
    CUdevice device = 7;
    begin("cuCtxGetDevice before the runtime is asked");
    CUresult error = cuCtxGetDevice(&device);
    say("%s %d", cu(error), device);
    end();
    begin("cuMemAlloc before the runtime is asked");
    error = cuMemAlloc(&d, 64);
    say("%s %s", cu(error), pointer((void *)d));
    end();
    line("cuMemFree of old memory", "%s", cu(cuMemFree((CUdeviceptr)old->other)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    line("cuMemGetAddressRange of old memory", "%s", cu(cuMemGetAddressRange(&d, &a, (CUdeviceptr)old->sync)));
    begin("cudaFree of old memory");
    say_rt(cudaFree(old->sync));
    end();
    begin("cudaFree of old managed memory");
    say_rt(cudaFree(old->managed));
    end();
    begin("cudaFree of old stream-ordered memory");
    say_rt(cudaFree(old->async));
    end();
    begin("cudaPointerGetAttributes of old memory");
    say_rt(cudaPointerGetAttributes(&attributes, old->sync));
    say("%d", attributes.type);
    end();
    void *p = KEPT;
    begin("cudaMalloc");
    say_rt(cudaMalloc(&p, 4096));
    say("%s", pointer(p));
    end();
    begin("new memory works");
    say("%s", rt(cudaMemset(p, 0x5a, 4096)));
    say("%s", yes_no(holds(p, 0x5a, 4096)));
    end();
    begin("cudaFree of new memory");
    say_rt(cudaFree(p));
    end();
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&d, 64)));
    p = KEPT;
    begin("cudaMallocAsync");
    say_rt(cudaMallocAsync(&p, 4096, 0));
    say("%s", pointer(p));
    end();
    begin("cudaFreeAsync");
    say_rt(cudaFreeAsync(p, 0));
    end();
}

void group_reset(void) {
    unsigned long long before = 0, after = 0;
    CUcontext old_context, new_context;
    start();
    struct old old = old_memory();
    NEED_CU(cuCtxGetCurrent(&old_context));
    NEED_CU(cuCtxGetId(NULL, &before));
    begin("cudaDeviceReset");
    say_rt(cudaDeviceReset());
    end();
    after_reset(&old);
    NEED_CU(cuCtxGetCurrent(&new_context));
    NEED_CU(cuCtxGetId(NULL, &after));
    line("the context's handle is the same", "%s", yes_no(old_context == new_context));
    line("its number is the same", "%s", yes_no(before == after));
}

void group_primary_reset(void) {
    start();
    struct old old = old_memory();
    line("cuDevicePrimaryCtxReset", "%s", cu(cuDevicePrimaryCtxReset(0)));
    after_reset(&old);
}

/* Without the runtime, whose own hold on the context would keep it. */
void group_primary_released(void) {
    CUcontext context;
    CUdeviceptr d = 0, again = 0;
    size_t a, b;
    NEED_CU(cuInit(0));
    NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_CU(cuCtxSetCurrent(context));
    NEED_CU(cuMemAlloc(&d, 4096));
    line("release of one of two", "%s", cu(cuDevicePrimaryCtxRelease(0)));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&again, 4096)));
    line("release of the last", "%s", cu(cuDevicePrimaryCtxRelease(0)));
    line("cuMemAlloc then", "%s", cu(cuMemAlloc(&again, 4096)));
    line("cuMemFree then", "%s", cu(cuMemFree(d)));
    line("cuMemGetInfo then", "%s", cu(cuMemGetInfo(&a, &b)));
    line("release of none", "%s", cu(cuDevicePrimaryCtxRelease(0)));
    NEED_CU(cuDevicePrimaryCtxRetain(&context, 0));
    NEED_CU(cuCtxSetCurrent(context));
    line("retained again, cuMemFree of old memory", "%s", cu(cuMemFree(d)));
    line("retained again, cuMemAlloc", "%s", cu(cuMemAlloc(&d, 4096)));
    line("retained again, cuMemFree", "%s", cu(cuMemFree(d)));
}

static void child(const struct old *old) {
    void *p = KEPT;
    CUdeviceptr d = (CUdeviceptr)KEPT;
    size_t a, b;
    int devices;
    begin("cudaMalloc");
    say_rt(cudaMalloc(&p, 64));
    say("%s", pointer(p));
    end();
    begin("cudaFree");
    say_rt(cudaFree(old->sync));
    end();
    begin("cudaFree(NULL)");
    say_rt(cudaFree(NULL));
    end();
    begin("cudaMallocAsync");
    say_rt(cudaMallocAsync(&p, 64, 0));
    end();
    begin("cudaFreeAsync");
    say_rt(cudaFreeAsync(old->async, 0));
    end();
    begin("cudaMallocManaged");
    say_rt(cudaMallocManaged(&p, 64, cudaMemAttachGlobal));
    end();
    begin("cudaMemGetInfo");
    say_rt(cudaMemGetInfo(&a, &b));
    end();
    begin("cudaGetDeviceCount");
    say_rt(cudaGetDeviceCount(&devices));
    end();
    line("cuInit", "%s", cu(cuInit(0)));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&d, 64)));
    line("cuMemFree", "%s", cu(cuMemFree((CUdeviceptr)old->other)));
    line("cuMemFree(0)", "%s", cu(cuMemFree(0)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    fflush(stdout);
    _exit(0);
}

/* Nothing of CUDA works in a forked child, and nothing it does harms the parent. */
void group_forked(void) {
    start();
    struct old old = old_memory();
    NEED(cudaMemset(old.sync, 0x21, 4096));
    NEED(cudaDeviceSynchronize());
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        child(&old);
    int status = 0;
    for (int i = 0; i < 100 && waitpid(pid, &status, WNOHANG) == 0; i++) {
        sleep_ms(100);
        if (i == 99) {
            kill(pid, SIGKILL);
            line("child", "hangs");
        }
    }
    line("child's end", "%s",
         WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "status 0"
         : WIFSIGNALED(status)                         ? "signal"
                                                       : "status");
    line("parent's data intact", "%s", yes_no(holds(old.sync, 0x21, 4096)));
    begin("parent's cudaFree");
    say_rt(cudaFree(old.sync));
    end();
}
