/*
 * Allocates on device 0 and frees while device 1 is current, in both ways, many times: the free belongs to the device the memory
 * is on, and serves there again: with SIMCUDA_MEMORY=96M there is less than what all rounds take together. Needs two devices
 * (SIMCUDA_DEVICES=2).
 */
#include "runtime.h"

#define ROUNDS 500
#define SIZE (256 * KIB)

static int device_of(const void *memory) {
    struct cudaPointerAttributes attributes;
    RT(cudaPointerGetAttributes(&attributes, memory));
    return attributes.device;
}

int main(void) {
    int strays = 0;
    cudaStream_t on_zero;
    if (device_count() < 2)
        skip("needs two devices");
    RT(cudaSetDevice(0));
    on_zero = new_stream(cudaStreamNonBlocking);
    for (int i = 0; i < ROUNDS; i++) {
        void *zero, *one, *ordered;
        RT(cudaSetDevice(0));
        RT(cudaMalloc(&zero, SIZE));
        RT(cudaMallocAsync(&ordered, SIZE, on_zero));
        strays += device_of(zero) != 0;
        strays += device_of(ordered) != 0;
        RT(cudaSetDevice(1));
        RT(cudaFree(zero));
        RT(cudaFreeAsync(ordered, on_zero));
        RT(cudaMalloc(&one, SIZE));
        strays += device_of(one) != 1;
        /* A stream of device 0 decides where this memory lives, whatever is current. */
        RT(cudaMallocAsync(&ordered, SIZE, on_zero));
        strays += device_of(ordered) != 0;
        RT(cudaSetDevice(0));
        RT(cudaFree(one));
        RT(cudaFreeAsync(ordered, on_zero));
    }
    RT(cudaDeviceSynchronize());
    printf("blocks on the wrong device: %d\n", strays);
    printf("expect allocations=%d frees=%d live_blocks=0 live_bytes=0\n", ROUNDS * 4, ROUNDS * 4);
    return 0;
}
