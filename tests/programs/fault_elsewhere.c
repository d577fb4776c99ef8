/*
 * A kernel of one context has faulted, another context is current. A call about a stream of the first says so; what the program
 * does in the second goes on.
 */
#include "driver.h"
#include <dlfcn.h>

int main(void) {
    void (*fault)(CUcontext) = (void (*)(CUcontext))dlsym(RTLD_DEFAULT, "simcuda_fault");
    CUcontext sound, faulty;
    CUdevice device;
    CUdeviceptr first, second, other = 0;
    CUstream stream;

    if (!fault)
        skip("needs the simulated driver, which faults on demand");
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&faulty, NULL, 0, device));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    CU(cuCtxCreate(&sound, NULL, 0, device));
    CU(cuMemAlloc(&first, KIB));
    CU(cuMemAlloc(&second, KIB));
    fault(faulty);
    printf("an allocation on the other's stream: %d\n", (int)cuMemAllocAsync(&other, KIB, stream));
    printf("a free here: %d\n", (int)cuMemFree(first));
    printf("an allocation: %d\n", (int)cuMemAlloc(&first, KIB));
    printf("frees: %d %d\n", (int)cuMemFree(first), (int)cuMemFree(second));
    return 0;
}
