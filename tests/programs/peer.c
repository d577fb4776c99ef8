/*
 * Two devices that reach each other's memory: blocks allocated before and after peer access is enabled are written from the other
 * device's stream, copied between the devices, freed with the other device current, and used again. Needs two devices
 * (SIMCUDA_DEVICES=2).
 */
#include "runtime.h"

#define SIZE (300 * KIB) /* many in a segment of a cache */
#define BLOCKS 8

static void say(const char *what, cudaError_t error) {
    cudaGetLastError();
    printf("%s: %s\n", what, cudaGetErrorName(error));
}

static int device_of(const void *memory) {
    struct cudaPointerAttributes attributes;

    RT(cudaPointerGetAttributes(&attributes, memory));
    return attributes.device;
}

/* Device `by` writes and reads blocks of device `of`, by a memset in its own stream (a kernel's write), a copy inside its stream
 * and a peer copy. */
static void reach(const char *when, void **block, int of, int by) {
    size_t wrong = 0;
    int strays = 0;
    void *own;

    RT(cudaSetDevice(by));
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    RT(cudaMalloc(&own, SIZE));
    for (int i = 0; i < BLOCKS; i++) {
        strays += device_of(block[i]) != of;
        slow_fill(block[i], 0x30 + i, SIZE, stream, 2);
        RT(cudaMemcpyAsync(own, block[i], SIZE, cudaMemcpyDeviceToDevice, stream));
        RT(cudaStreamSynchronize(stream));
        wrong += wrong_on_device(own, 0x30 + i, SIZE);
        RT(cudaMemset(own, 0x50 + i, SIZE));
        RT(cudaMemcpyPeer(block[i], of, own, by, SIZE));
        RT(cudaDeviceSynchronize()); /* it does not wait itself */
    }
    RT(cudaStreamDestroy(stream));
    strays += device_of(own) != by;
    RT(cudaFree(own));
    RT(cudaSetDevice(of));
    for (int i = 0; i < BLOCKS; i++)
        wrong += wrong_on_device(block[i], 0x50 + i, SIZE);
    printf("%s, of %d by %d: wrong bytes %zu, on the wrong device %d\n", when, of, by, wrong, strays);
}

static void allocate(void **block, int device) {
    RT(cudaSetDevice(device));
    for (int i = 0; i < BLOCKS; i++)
        RT(cudaMalloc(&block[i], SIZE));
}

int main(void) {
    void *before[2][BLOCKS], *after[2][BLOCKS];
    needs_peers();
    for (int i = 0; i < 2; i++)
        allocate(before[i], i);
    for (int i = 0; i < 2; i++) {
        RT(cudaSetDevice(i));
        say("enable", cudaDeviceEnablePeerAccess(1 - i, 0));
        say("enable again", cudaDeviceEnablePeerAccess(1 - i, 0));
    }
    for (int round = 0; round < 3; round++) { /* the later ones are of memory that was freed */
        for (int i = 0; i < 2; i++)
            allocate(after[i], i);
        for (int i = 0; i < 2; i++) {
            reach("allocated before", before[i], i, 1 - i);
            reach("allocated after", after[i], i, 1 - i);
        }
        for (int i = 0; i < BLOCKS; i++) {
            RT(cudaSetDevice(i % 2));
            RT(cudaFree(after[0][i]));
            RT(cudaFree(after[1][i]));
        }
    }
    for (int i = 0; i < 2; i++) {
        RT(cudaSetDevice(i));
        say("disable", cudaDeviceDisablePeerAccess(1 - i));
        say("disable again", cudaDeviceDisablePeerAccess(1 - i));
        for (int j = 0; j < BLOCKS; j++)
            RT(cudaFree(before[i][j]));
    }
    printf("expect allocations=76 frees=76 live_blocks=0\n");
    return 0;
}
