/*
 * Memory of special places: another process's, virtual memory, arrays; and the context that a fault has ended.
 */
#include "conform.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>

/* --- other processes --- */

static void hex(char *text, const cudaIpcMemHandle_t *handle) {
    for (size_t i = 0; i < sizeof *handle; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)handle->reserved[i]);
}

/* Prints on one line, which the parent's line goes on with. */
void ipc_child(const char *text) {
    cudaIpcMemHandle_t handle;
    unsigned char first = 0, *p = NULL;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    cudaError_t error = cudaIpcOpenMemHandle((void **)&p, handle, cudaIpcMemLazyEnablePeerAccess);
    printf("open %s", rt(error));
    if (error == cudaSuccess) {
        cudaMemcpy(&first, p, 1, cudaMemcpyDeviceToHost);
        printf(" reads 0x%02x", first);
        CUdeviceptr base = 0;
        size_t size = 0;
        CUresult range = cuMemGetAddressRange(&base, &size, (CUdeviceptr)p);
        printf(" range %s %s", cu(range), range != CUDA_SUCCESS ? "-" : base == (CUdeviceptr)p ? "base" : "other");
        printf(" cudaFree %s", rt(cudaFree(p)));
        printf(" %s", last(cudaErrorInvalidValue));
        printf(" close %s", rt(cudaIpcCloseMemHandle(p)));
        printf(" again %s", rt(cudaIpcCloseMemHandle(p)));
    }
}

/* Without a shell in between, which some sanitizers' libraries do not suffer in front of it. */
static void say_child(const cudaIpcMemHandle_t *handle) {
    char text[2 * sizeof *handle + 1], said[1000];
    char *arguments[] = {"conformance", "ipc-child", text, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], status = -1;
    size_t used = 0;
    ssize_t n;
    pid_t pid;
    hex(text, handle);
    if (pipe(ends) != 0)
        die("no pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ) != 0)
        die("no child");
    close(ends[1]);
    while ((n = read(ends[0], said + used, sizeof said - 1 - used)) > 0)
        used += (size_t)n;
    said[used] = '\0';
    close(ends[0]);
    posix_spawn_file_actions_destroy(&actions);
    waitpid(pid, &status, 0);
    say("%s", said);
    if (status != 0)
        say("status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

void group_ipc(void) {
    cudaIpcMemHandle_t handle, other;
    start();
    for (int k = 0; k < KINDS; k++) {
        void *p = memory(k, 4096);
        begin("handle of %s", kind_name[k]);
        say_rt(cudaIpcGetMemHandle(&handle, p));
        end();
        drop(p);
    }
    char *small = memory(MALLOC, 4096), *neighbour = memory(MALLOC, 4096), *large = memory(MALLOC, 5 * MIB);
    NEED(cudaMemset(small, 0xa1, 4096));
    NEED(cudaMemset(neighbour, 0xb2, 4096));
    NEED(cudaMemset(large, 0xc3, 5 * MIB));
    NEED(cudaDeviceSynchronize());
    cudaError_t error = cudaIpcGetMemHandle(&handle, small);
    begin("handle of an interior pointer");
    say_rt(cudaIpcGetMemHandle(&other, small + 256));
    say("equals the base's: %s", yes_no(error == cudaSuccess && memcmp(&handle, &other, 64) == 0));
    end();
    begin("handle of the neighbour");
    say_rt(cudaIpcGetMemHandle(&other, neighbour));
    say("equals it: %s", yes_no(error == cudaSuccess && memcmp(&handle, &other, 64) == 0));
    end();
    const struct {
        const char *name;
        char *p;
    } shared[] = {{"small", small}, {"neighbour", neighbour}, {"large", large}, {"large, interior", large + 3 * MIB}};
    for (size_t i = 0; i < COUNT_OF(shared); i++) {
        begin("another process, %s", shared[i].name);
        cudaError_t got = cudaIpcGetMemHandle(&handle, shared[i].p);
        if (got == cudaSuccess)
            say_child(&handle);
        else
            say("%s %s", rt(got), last(got));
        end();
    }
    void *opened = KEPT;
    begin("opened by its own process");
    if (cudaIpcGetMemHandle(&handle, small) == cudaSuccess) {
        say_rt(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
        say("%s", pointer(opened));
    } else {
        say("no handle");
        cudaGetLastError();
    }
    end();
    memset(&handle, 0, sizeof handle);
    begin("a handle of zeros");
    say_rt(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
    end();
    begin("close of memory that was not opened");
    say_rt(cudaIpcCloseMemHandle(small));
    end();
    begin("cudaFree of exported memory");
    say_rt(cudaFree(small));
    say_rt(cudaFree(small));
    end();
    begin("handle of freed memory");
    say_rt(cudaIpcGetMemHandle(&handle, small));
    end();
    begin("handle of the stack");
    say_rt(cudaIpcGetMemHandle(&handle, &handle));
    end();
    begin("handle of NULL");
    say_rt(cudaIpcGetMemHandle(&handle, NULL));
    end();
}

/* --- virtual memory --- */

void group_virtual_memory(void) {
    start();
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 7, second_handle = 7;
    CUdeviceptr at = 7, elsewhere = 7;
    size_t granule = 0, recommended = 0;
    unsigned long long flags = 0;
    line("granularity", "%s", cu(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM)));
    line("granularity is 2 MiB", "%s", yes_no(granule == 2 * MIB));
    line("recommended granularity", "%s",
         cu(cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)));
    line("recommended is 2 MiB", "%s", yes_no(recommended == 2 * MIB));
    line("cuMemCreate(0)", "%s", cu(cuMemCreate(&handle, 0, &properties, 0)));
    line("cuMemCreate(granule+1)", "%s", cu(cuMemCreate(&handle, granule + 1, &properties, 0)));
    line("cuMemCreate(no properties)", "%s", cu(cuMemCreate(&handle, granule, NULL, 0)));
    line("cuMemCreate(NULL)", "%s", cu(cuMemCreate(NULL, granule, &properties, 0)));
    line("cuMemCreate(2^50)", "%s", cu(cuMemCreate(&handle, (size_t)1 << 50, &properties, 0)));
    properties.location.id = 99;
    line("cuMemCreate(device 99)", "%s", cu(cuMemCreate(&handle, granule, &properties, 0)));
    properties.location.id = 0;
    line("cuMemAddressReserve(0)", "%s", cu(cuMemAddressReserve(&at, 0, 0, 0, 0)));
    line("cuMemAddressReserve(granule+1)", "%s", cu(cuMemAddressReserve(&at, granule + 1, 0, 0, 0)));
    line("cuMemAddressReserve", "%s", cu(cuMemAddressReserve(&at, 4 * granule, 0, 0, 0)));
    line("cuMemCreate", "%s", cu(cuMemCreate(&handle, 2 * granule, &properties, 0)));
    line("cuMemSetAccess before the mapping", "%s", cu(cuMemSetAccess(at, 2 * granule, &access, 1)));
    line("cuMemUnmap before the mapping", "%s", cu(cuMemUnmap(at, 2 * granule)));
    line("cuMemMap beyond the handle", "%s", cu(cuMemMap(at, 4 * granule, 0, handle, 0)));
    line("cuMemMap(0)", "%s", cu(cuMemMap(at, 0, 0, handle, 0)));
    line("cuMemMap", "%s", cu(cuMemMap(at, 2 * granule, 0, handle, 0)));
    line("cuMemMap where something is", "%s", cu(cuMemMap(at, 2 * granule, 0, handle, 0)));
    line("cuMemGetAccess before it is set", "%s", cu(cuMemGetAccess(&flags, &access.location, at)));
    line("access before it is set", "%llu", flags);
    line("cuMemSetAccess", "%s", cu(cuMemSetAccess(at, 2 * granule, &access, 1)));
    unsigned yes = 1;
    line("set sync memops", "%s", cu(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at)));
    line("set an attribute that is read only", "%s", cu(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, at)));
    line("cuMemGetAccess", "%s", cu(cuMemGetAccess(&flags, &access.location, at)));
    line("access", "%llu", flags);
    line("memset", "%s", cu(cuMemsetD8(at, 0x6e, 2 * granule)));
    line("it holds its data", "%s", yes_no(holds((void *)at, 0x6e, 2 * granule)));
    line("cuMemRelease while mapped", "%s", cu(cuMemRelease(handle)));
    line("it still holds its data", "%s", yes_no(holds((void *)at, 0x6e, 2 * granule)));
    line("cuMemRetainAllocationHandle", "%s", cu(cuMemRetainAllocationHandle(&second_handle, (void *)at)));
    line("cuMemRelease of it", "%s", cu(cuMemRelease(second_handle)));
    line("cuMemFree of a mapping", "%s", cu(cuMemFree(at)));
    line("cuMemFreeAsync of a mapping", "%s", cu(cuMemFreeAsync(at, stream)));
    line("cuMemAddressFree while mapped", "%s", cu(cuMemAddressFree(at, 4 * granule)));
    line("cuMemUnmap of a part", "%s", cu(cuMemUnmap(at, granule)));
    line("cuMemUnmap", "%s", cu(cuMemUnmap(at, 2 * granule)));
    line("cuMemUnmap again", "%s", cu(cuMemUnmap(at, 2 * granule)));
    line("cuMemAddressFree of a part", "%s", cu(cuMemAddressFree(at, granule)));
    line("cuMemAddressFree", "%s", cu(cuMemAddressFree(at, 4 * granule)));
    line("cuMemAddressFree again", "%s", cu(cuMemAddressFree(at, 4 * granule)));

    /* One piece of memory at two addresses. */
    NEED_CU(cuMemCreate(&handle, granule, &properties, 0));
    NEED_CU(cuMemAddressReserve(&at, granule, 0, 0, 0));
    NEED_CU(cuMemAddressReserve(&elsewhere, granule, 0, 0, 0));
    line("a mapping", "%s", cu(cuMemMap(at, granule, 0, handle, 0)));
    line("the same memory mapped twice", "%s", cu(cuMemMap(elsewhere, granule, 0, handle, 0)));
    line("its access", "%s", cu(cuMemSetAccess(at, granule, &access, 1)));
    line("its access at the other address", "%s", cu(cuMemSetAccess(elsewhere, granule, &access, 1)));
    line("its memset", "%s", cu(cuMemsetD8(at, 0x2d, granule)));
    line("written here, read there", "%s", yes_no(holds((void *)elsewhere, 0x2d, granule)));
    line("cuMemUnmap here", "%s", cu(cuMemUnmap(at, granule)));
    line("cuMemUnmap there", "%s", cu(cuMemUnmap(elsewhere, granule)));
    line("its cuMemRelease", "%s", cu(cuMemRelease(handle)));
    line("its cuMemRelease again", "%s", cu(cuMemRelease(handle)));
    line("cuMemAddressFree here", "%s", cu(cuMemAddressFree(at, granule)));
    line("cuMemAddressFree there", "%s", cu(cuMemAddressFree(elsewhere, granule)));
}

/* --- arrays --- */

void group_arrays(void) {
    start();
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 16, .Height = 16, .Depth = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    line("cuArrayCreate", "%s", cu(cuArrayCreate(&array, &flat)));
    line("cuMemFree of an array", "%s", cu(cuMemFree((CUdeviceptr)array)));
    line("cuArrayDestroy", "%s", cu(cuArrayDestroy(array)));
    line("cuArray3DCreate", "%s", cu(cuArray3DCreate(&array, &deep)));
    line("cuArrayDestroy of it", "%s", cu(cuArrayDestroy(array)));
    line("cuArrayCreate(NULL)", "%s", cu(cuArrayCreate(NULL, &flat)));
    flat.NumChannels = 3;
    line("cuArrayCreate(3 channels)", "%s", cu(cuArrayCreate(&array, &flat)));
    flat.NumChannels = 1;
    flat.Width = 0;
    line("cuArrayCreate(width 0)", "%s", cu(cuArrayCreate(&array, &flat)));
    flat.Width = (size_t)1 << 40;
    line("cuArrayCreate(2^40)", "%s", cu(cuArrayCreate(&array, &flat)));
}

/* --- a sticky error --- */

/* A kernel that writes where nothing is. */
static const char writes_nowhere[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                                     ".visible .entry wild()\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n"
                                     "mov.u64 %rd1, 4096;\nmov.u32 %r1, 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

/* The simulated driver has no kernels, but a function that does the same. Nothing is linked, so that the program loads on both.
 */
static const char *fault(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CUresult (*simulated)(CUcontext) = driver ? (CUresult(*)(CUcontext))dlsym(driver, "simcuda_fault") : NULL;
    if (simulated)
        return cu(simulated(NULL));
    CUresult (*load)(CUmodule *, const void *) =
        driver ? (CUresult(*)(CUmodule *, const void *))dlsym(driver, "cuModuleLoadData") : NULL;
    CUresult (*find)(CUfunction *, CUmodule, const char *) =
        driver ? (CUresult(*)(CUfunction *, CUmodule, const char *))dlsym(driver, "cuModuleGetFunction") : NULL;
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                       void **) = driver ? (CUresult(*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                        unsigned, CUstream, void **, void **))dlsym(driver, "cuLaunchKernel")
                                         : NULL;
    CUmodule module;
    CUfunction function;
    if (!load || !find || !launch)
        return "no way to make one";
    CUresult error = load(&module, writes_nowhere);
    if (error == CUDA_SUCCESS)
        error = find(&function, module, "wild");
    if (error == CUDA_SUCCESS)
        error = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    return cu(error);
}

void group_sticky(void) {
    start();
    void *old = memory(MALLOC, 4096), *async = memory(ASYNC, 4096), *other = memory(MALLOC, 4096), *p = KEPT;
    struct cudaPointerAttributes attributes;
    CUdeviceptr d = (CUdeviceptr)KEPT;
    size_t a, b;
    unsigned type;
    line("fault", "%s", fault());
    cudaError_t error = cudaStreamSynchronize(stream);
    line("cudaStreamSynchronize", "%s", rt(error));
    cudaError_t first = cudaGetLastError(), again = cudaGetLastError();
    line("last error stays", "%s %s", rt(first), rt(again));
    error = cudaMalloc(&p, 64);
    line("cudaMalloc", "%s %s", rt(error), pointer(p));
    line("cudaMalloc(0)", "%s", rt(cudaMalloc(&p, 0)));
    line("cudaMalloc(NULL)", "%s", rt(cudaMalloc(NULL, 64)));
    line("cudaFree", "%s", rt(cudaFree(old)));
    line("cudaFree again", "%s", rt(cudaFree(old)));
    line("cudaFree(NULL)", "%s", rt(cudaFree(NULL)));
    line("cudaFree of nobody's", "%s", rt(cudaFree((void *)0x1234)));
    line("cudaMallocAsync", "%s", rt(cudaMallocAsync(&p, 64, stream)));
    line("cudaFreeAsync", "%s", rt(cudaFreeAsync(async, stream)));
    line("cudaMallocManaged", "%s", rt(cudaMallocManaged(&p, 64, cudaMemAttachGlobal)));
    line("cudaMemGetInfo", "%s", rt(cudaMemGetInfo(&a, &b)));
    line("cudaPointerGetAttributes", "%s", rt(cudaPointerGetAttributes(&attributes, other)));
    line("cuMemAlloc", "%s", cu(cuMemAlloc(&d, 64)));
    line("cuMemAlloc(0)", "%s", cu(cuMemAlloc(&d, 0)));
    line("cuMemFree", "%s", cu(cuMemFree((CUdeviceptr)other)));
    line("cuMemFree(0)", "%s", cu(cuMemFree(0)));
    line("cuMemAllocPitch", "%s", cu(cuMemAllocPitch(&d, &a, 64, 2, 4)));
    line("cuMemAllocAsync", "%s", cu(cuMemAllocAsync(&d, 64, stream)));
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&a, &b)));
    line("cuMemGetAddressRange", "%s", cu(cuMemGetAddressRange(&d, &a, (CUdeviceptr)other)));
    line("cuPointerGetAttribute", "%s", cu(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)other)));
    line("cudaPeekAtLastError", "%s", rt(cudaPeekAtLastError()));
    line("cudaDeviceReset", "%s", rt(cudaDeviceReset()));
}
