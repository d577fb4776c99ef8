/*
 * CUDA IPC where it meets something else.
 *
 *     ipc_corners contexts     a handle is opened in two contexts of a device, which the driver does not like, and in one of another; closed in the first, which then
 *                              ends
 *     ipc_corners free         is the work on a shared block done when its cuMemFree returns?
 */
#include "driver.h"

#include <sys/wait.h>

static CUcontext context_on(int ordinal) {
    CUcontext context;
    CUdevice device;

    CU(cuDeviceGet(&device, ordinal));
    CU(cuCtxCreate(&context, NULL, 0, device));
    return context;
}

static CUdeviceptr open_in(CUcontext context, const char *name, CUipcMemHandle handle) {
    CUdeviceptr memory = 0;

    CU(cuCtxSetCurrent(context));
    printf("open %s: %d\n", name, (int)cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return memory;
}

static void importer(int in) {
    CUipcMemHandle handle;
    unsigned char byte = 0;
    int devices;

    if (read(in, &handle, sizeof handle) != sizeof handle)
        _exit(1);
    CU(cuInit(0));
    CU(cuDeviceGetCount(&devices));
    CUcontext first = context_on(0), second = context_on(0), other = devices > 1 ? context_on(1) : NULL;
    CUdeviceptr here = open_in(first, "in the first", handle);
    open_in(second, "in the second", handle);
    CUdeviceptr there = other ? open_in(other, "on the other device", handle) : 0;
    CU(cuCtxSetCurrent(first));
    printf("close in the first: %d\n", (int)cuIpcCloseMemHandle(here));
    CU(cuCtxDestroy(first));
    if (there) {
        CU(cuCtxSetCurrent(other));
        CU(cuMemcpyDtoH(&byte, there, 1));
        printf("the other's data: %d\n", byte);
        printf("close on the other device: %d\n", (int)cuIpcCloseMemHandle(there));
    }
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    bool contexts = argc > 1 && strcmp(argv[1], "contexts") == 0;
    CUdeviceptr first, block;
    CUipcMemHandle handle;
    int to[2], status = 0;

    if (pipe(to) != 0)
        die("no pipe");
    pid_t child = contexts ? fork() : -1;
    if (child == 0)
        importer(to[0]);
    use_primary(0);
    CU(cuMemAlloc(&first, 4 * KIB));
    CU(cuMemAlloc(&block, 4 * KIB));
    CU(cuMemsetD8(block, 7, 4 * KIB));
    CU(cuCtxSynchronize());
    CU(cuIpcGetMemHandle(&handle, block));
    if (contexts) {
        if (write(to[1], &handle, sizeof handle) != sizeof handle)
            die("no importer");
        waitpid(child, &status, 0);
        printf("importer: %d\n", status);
        return 0;
    }
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    slow_fill(block, 1, 4 * KIB, stream, 300);
    CU(cuMemFree(block));
    printf("work done when cuMemFree returned: %s\n", yes_no(cuStreamQuery(stream) == CUDA_SUCCESS));
    CU(cuCtxSynchronize());
    return 0;
}
