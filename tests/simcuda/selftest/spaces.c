/* spaces.c — virtual memory, other processes, other devices, green contexts, arrays. Wants SIMCUDA_DEVICES=2. */
#include "selftest.h"

#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)2 << 20)

static void virtual_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, .location = prop.location};
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr p, q;
    size_t granularity, before, during, after, total;
    cuMemGetInfo(&before, &total);
    cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    check(granularity == PAGE, "2 MiB granularity");
    expect(cuMemCreate(&handle, 100, &prop, 0), CUDA_ERROR_INVALID_VALUE, "an odd size");
    expect(cuMemCreate(&handle, 2 * PAGE, &prop, 0), CUDA_SUCCESS, "a physical handle");
    cuMemGetInfo(&during, &total);
    check(before - during == 2 * PAGE, "takes memory");
    expect(cuMemAddressReserve(&p, 8 * PAGE, 0, 0, 0), CUDA_SUCCESS, "addresses");
    expect(cuMemMap(p, 2 * PAGE, 0, handle, 0), CUDA_SUCCESS, "mapped");
    expect(cuMemMap(p + PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE, "not over itself");
    expect(cuMemMap(p + 4 * PAGE, 2 * PAGE, 0, handle, 0), CUDA_SUCCESS, "but a second time elsewhere");
    expect(cuMemSetAccess(p, 2 * PAGE, &access, 1), CUDA_SUCCESS, "accessible");
    expect(cuMemSetAccess(p + 4 * PAGE, 2 * PAGE, &access, 1), CUDA_SUCCESS, "there too");
    cuMemsetD8(p, 4, 2 * PAGE);
    check(byte_at(p + 6 * PAGE - 1) == 4, "both show the same bytes");
    int fd = -1;
    expect(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS, "exported");
    expect(cuMemImportFromShareableHandle(&again, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), CUDA_SUCCESS,
           "imported");
    close(fd);
    cuMemAddressReserve(&q, 2 * PAGE, 0, 0, 0);
    expect(cuMemMap(q, 2 * PAGE, 0, again, 0), CUDA_SUCCESS, "mapped from the import");
    cuMemSetAccess(q, 2 * PAGE, &access, 1);
    check(byte_at(q) == 4, "the same bytes again");
    cuMemUnmap(q, 2 * PAGE);
    cuMemAddressFree(q, 2 * PAGE);
    cuMemRelease(again);
    expect(cuMemRelease(handle), CUDA_SUCCESS, "released");
    check(byte_at(p) == 4, "a mapping keeps it");
    expect(cuMemAddressFree(p, 8 * PAGE), CUDA_ERROR_INVALID_VALUE, "addresses in use");
    cuMemUnmap(p, 2 * PAGE);
    expect(cuMemsetD8(p, 0, 1), CUDA_ERROR_INVALID_VALUE, "unmapped addresses are refused");
    cuMemUnmap(p + 4 * PAGE, 2 * PAGE);
    cuMemGetInfo(&after, &total);
    check(after == before, "the last unmap gives the memory back");
    expect(cuMemAddressFree(p, 8 * PAGE), CUDA_SUCCESS, "addresses given back");
}

struct message {
    CUipcMemHandle small, large;
    CUipcEventHandle event;
};

/* The importing process: started afresh, because a forked child has no driver. */
static int importer(void) {
    struct message m;
    CUdeviceptr small, large, again;
    CUevent event;
    if (read(0, &m, sizeof(m)) != (ssize_t)sizeof(m))
        return 2;
    start(0);
    ((unsigned char *)&m.small)[63] = 0x5a; /* the driver does not look there */
    if (cuIpcOpenMemHandle(&small, m.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
        cuIpcOpenMemHandle(&large, m.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || cuIpcOpenEventHandle(&event, m.event))
        return 3;
    if (cuStreamWaitEvent(NULL, event, 0) || cuEventQuery(event) != CUDA_ERROR_NOT_READY)
        return 4;
    if (byte_at(small) != 11 || byte_at(large) != 12) /* ordered behind the exporter's write */
        return 5;
    if (cuIpcOpenMemHandle(&again, m.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || again != small)
        return 6;
    cuMemsetD8(large, 13, 16);
    cuCtxSynchronize();
    if (cuMemFree(small) != CUDA_ERROR_INVALID_VALUE)
        return 7;
    return cuIpcCloseMemHandle(small) || cuIpcCloseMemHandle(small) || cuIpcCloseMemHandle(large) ? 8 : 0;
}

static void other_process(const char *self) {
    struct message m;
    CUdeviceptr first, small, large, managed;
    CUevent event;
    CUipcMemHandle inside;
    int channel[2], status = -1;
    cuMemAlloc(&first, 100);
    cuMemAlloc(&small, 100);
    cuMemAlloc(&large, 3 * PAGE);
    cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL);
    expect(cuIpcGetMemHandle(&m.small, managed), CUDA_ERROR_INVALID_VALUE, "managed memory cannot be exported");
    expect(cuIpcGetMemHandle(&m.small, small), CUDA_SUCCESS, "exported");
    cuIpcGetMemHandle(&inside, small + 50);
    check(memcmp(&inside, &m.small, sizeof(inside)) == 0, "an interior pointer's handle is the base's");
    CUdeviceptr here;
    expect(cuIpcOpenMemHandle(&here, m.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT,
           "not in the same process");
    cuIpcGetMemHandle(&m.large, large);
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    expect(cuIpcGetEventHandle(&m.event, event), CUDA_SUCCESS, "an event for others");
    if (pipe(channel))
        return;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(channel[0], 0);
        execl(self, self, "importer", (char *)NULL);
        _exit(9);
    }
    cuLaunchHostFunc(NULL, slow, (void *)1500);
    cuMemsetD8(small, 11, 100);
    cuMemsetD8(large, 12, 100);
    cuEventRecord(event, NULL);
    if (write(channel[1], &m, sizeof(m)) < 0)
        return;
    waitpid(pid, &status, 0);
    if (status)
        printf("# importer: %d\n", WEXITSTATUS(status));
    check(status == 0, "another process sees both, in the event's order");
    check(byte_at(large) == 13, "and its write arrives");
    cuEventDestroy(event);
    cuMemFree(managed);
    cuMemFree(large);
    cuMemFree(small);
    cuMemFree(first);
}

static void two_devices(CUcontext ctx) {
    CUcontext other;
    CUdeviceptr here, there;
    int can = 0;
    cuDevicePrimaryCtxRetain(&other, 1);
    cuDeviceCanAccessPeer(&can, 0, 1);
    check(can, "devices reach each other");
    expect(cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS, "peer access");
    expect(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "once");
    cuMemAlloc(&here, 64);
    cuMemsetD8(here, 21, 64);
    cuCtxSetCurrent(other);
    cuMemAlloc(&there, 64);
    int ordinal = -1;
    cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there);
    check(ordinal == 1, "memory knows its device");
    expect(cuMemcpyPeer(there, other, here, ctx, 64), CUDA_SUCCESS, "a peer copy");
    check(byte_at(there) == 21, "arrives");
    /* an event of one context orders the other's work */
    CUevent e;
    CUstream mine;
    cuCtxSetCurrent(ctx);
    cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING);
    cuLaunchHostFunc(mine, slow, (void *)30);
    cuMemsetD8Async(there, 1, 64, mine);
    cuCtxRecordEvent(ctx, e);
    cuCtxSetCurrent(other);
    expect(cuCtxWaitEvent(other, e), CUDA_SUCCESS, "fences cross contexts");
    cuMemsetD8(there, 2, 64);
    cuCtxSynchronize();
    check(byte_at(there) == 2, "and order them");
    cuMemFree(there);
    cuDevicePrimaryCtxRelease(1);
    cuCtxSetCurrent(ctx);
    expect(cuMemFree(there), CUDA_ERROR_INVALID_VALUE, "memory ends with its context");
    cuStreamDestroy(mine);
    cuEventDestroy(e);
    cuMemFree(here);
}

static void green_context(CUcontext ctx) {
    CUdevResource sm, part;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUstream s;
    CUevent e;
    unsigned groups = 1;
    cuDeviceGetDevResource(0, &sm, CU_DEV_RESOURCE_TYPE_SM);
    cuDevSmResourceSplitByCount(&part, &groups, &sm, NULL, 0, 8);
    cuDevResourceGenerateDesc(&desc, &part, 1);
    expect(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS, "a green context");
    expect(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS, "with a stream");
    cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    cuLaunchHostFunc(s, slow, (void *)30);
    cuCtxRecordEvent(ctx, e);
    expect(cuEventQuery(e), CUDA_ERROR_NOT_READY, "the primary context's fence covers it");
    cuCtxSynchronize();
    expect(cuGreenCtxDestroy(green), CUDA_SUCCESS, "destroyed");
    cuEventDestroy(e);
}

static void arrays(void) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR desc = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    size_t before, during, after, total;
    cuMemGetInfo(&before, &total);
    expect(cuArrayCreate(&array, &desc), CUDA_SUCCESS, "an array");
    cuMemGetInfo(&during, &total);
    cuArrayDestroy(array);
    cuMemGetInfo(&after, &total);
    check(before - during == (size_t)16 << 20 && after == before, "takes memory and gives it back");
}

int main(int argc, char **argv) {
    if (argc > 1)
        return importer();
    CUcontext ctx = start(0);
    virtual_memory();
    other_process(argv[0]);
    two_devices(ctx);
    green_context(ctx);
    arrays();
    return finish();
}
