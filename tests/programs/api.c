/*
 * A program that uses cuplug.h: without the library it runs and says so; with it, it asks what was done and gives memory back.
 */
#include "runtime.h"
#include "shim/cuplug.h"
#include <errno.h>

#define SIZE (20 * MIB)

static long long stat(const char *name, int device) {
    long long value = -1;
    int error = cuplug_get_stat(name, device, &value);
    return error ? error : value;
}

int main(void) {
    void *memory;
    if (!cuplug_api_version) {
        RT(cudaMalloc(&memory, SIZE));
        RT(cudaFree(memory));
        printf("without cuplug\n");
        return 0;
    }
    printf("version at least 1: %s, before CUDA: %s\n", yes_no(cuplug_api_version() >= 1), cuplug_get_backend() ? cuplug_get_backend() : "none");
    printf("trim before CUDA: %s\n", cuplug_trim(0) == -EAGAIN ? "not at work" : "?");
    RT(cudaMalloc(&memory, SIZE));
    printf("backend: %s\n", cuplug_get_backend());
    printf("allocations %lld, of device 0 %lld, live bytes %lld\n", stat("allocations", -1), stat("allocations", 0), stat("live_bytes", -1));
    RT(cudaFree(memory));
    printf("frees %lld, peak %lld\n", stat("frees", -1), stat("peak_live_bytes", 0));
    long long reserved = stat("reserved_bytes", 0), given = cuplug_trim(0);
    printf("all that was reserved came back: %s, reserved now %lld\n", yes_no(given == reserved), stat("reserved_bytes", 0));
    printf("errors: %s %s %s %s\n", yes_no(stat("allocation", -1) == -ENOENT), yes_no(stat("frees", 64) == -ENODEV),
           yes_no(cuplug_get_stat("frees", -1, NULL) == -EINVAL), yes_no(cuplug_trim(-7) == -ENODEV));
    int known = 0;
    while (cuplug_stat_name(known))
        known += stat(cuplug_stat_name(known), -1) >= 0;
    printf("all names known: %s\n", yes_no(known > 10));
    RT(cudaMalloc(&memory, SIZE));
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    long long busy = cuplug_trim(0);
    RT(cudaStreamEndCapture(stream, &graph));
    printf("trim in a capture: %s\n", busy == -EBUSY ? "busy" : "?");
    RT(cudaFree(memory));
    printf("pending error: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
