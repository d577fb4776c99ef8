/*
 * CUDA IPC where it meets something else.
 *
 *     ipc_corners contexts     a handle is opened in two contexts and closed in one, which then ends
 *     ipc_corners free         is the work on a shared block done when its cuMemFree returns?
 */
#include "driver.h"

#include <sys/wait.h>

static void importer(int in) {
    CUipcMemHandle handle;
    CUcontext first, second;
    CUdevice device;
    CUdeviceptr here, there, base = 0;
    size_t size;

    if (read(in, &handle, sizeof handle) != sizeof handle)
        _exit(1);
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&second, NULL, 0, device));
    CU(cuCtxCreate(&first, NULL, 0, device));
    CUresult opened = cuIpcOpenMemHandle(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    printf("open in the first: %d\n", (int)opened);
    CU(cuCtxSetCurrent(second));
    CUresult again = cuIpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    printf("open in the second: %d\n", (int)again);
    fflush(stdout);
    if (opened != CUDA_SUCCESS || again != CUDA_SUCCESS)
        _exit(0);
    CU(cuCtxSetCurrent(first));
    printf("close in the first: %d\n", (int)cuIpcCloseMemHandle(here));
    CU(cuCtxDestroy(first));
    CU(cuCtxSetCurrent(second));
    CU(cuMemGetAddressRange(&base, &size, there));
    printf("the second's begins at the block: %s\n", yes_no(base == there));
    printf("close in the second: %d\n", (int)cuIpcCloseMemHandle(there));
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
