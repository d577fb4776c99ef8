/*
 * A block that the other device still works on is freed, and comes to its next owner only after that work. The driver does not do so: its cudaFree takes
 * the memory away under the other device's work, and what its pool has ordered does not hold for a device that waits for an event recorded at once. So
 * this runs under a backend alone. Needs two devices (SIMCUDA_DEVICES=2).
 */
#include "runtime.h"

#define SIZE (40 * MIB) /* so large that an allocator would want it back at once */
#define NEXT 3          /* the next owner's blocks: the freed one is among them if it may be used again */

static cudaStream_t one[2], two[2];
static cudaEvent_t event[2];

static void on(int device) {
    RT(cudaSetDevice(device));
}

static void finish(void) {
    for (int i = 0; i < 2; i++) {
        on(i);
        RT(cudaDeviceSynchronize());
    }
}

/* Work of the owner's waits for the other's, which is what makes its own cudaFree come after it. */
static void freed(int owner, int writer, int freer) {
    int other = 1 - owner;
    void *old, *next[NEXT];
    size_t wrong = 0;

    on(owner);
    RT(cudaMalloc(&old, SIZE));
    on(other);
    slow_fill(old, 0x11, SIZE, one[other], KERNEL_MS);
    RT(cudaEventRecord(event[other], one[other]));
    on(owner);
    RT(cudaStreamWaitEvent(two[owner], event[other], 0));
    on(freer);
    RT(cudaFree(old));
    for (int i = 0; i < NEXT; i++) {
        on(owner);
        RT(cudaMalloc(&next[i], SIZE));
        on(writer);
        RT(cudaMemsetAsync(next[i], 0x22, SIZE, two[writer]));
    }
    finish();
    on(owner);
    for (int i = 0; i < NEXT; i++) {
        wrong += wrong_on_device(next[i], 0x22, SIZE);
        RT(cudaFree(next[i]));
    }
    printf("block of %d, freed with %d current, next work of %d: wrong bytes %zu\n", owner, freer, writer, wrong);
}

/* The next owner's stream passes the block on to the other device, by an event and no work before it. */
static void passed_on(int owner) {
    int other = 1 - owner;
    void *from, *old, *next;

    on(other);
    RT(cudaMalloc(&from, SIZE));
    RT(cudaMemset(from, 0x33, SIZE));
    finish();
    on(owner);
    RT(cudaMallocAsync(&old, SIZE, one[owner]));
    slow_fill(old, 0x11, SIZE, one[owner], KERNEL_MS);
    RT(cudaFreeAsync(old, one[owner]));
    RT(cudaMallocAsync(&next, SIZE, two[owner]));
    RT(cudaEventRecord(event[owner], two[owner]));
    on(other);
    RT(cudaStreamWaitEvent(one[other], event[owner], 0));
    RT(cudaMemcpyPeerAsync(next, owner, from, other, SIZE, one[other]));
    finish();
    on(owner);
    printf("stream-ordered block of %d, passed on: wrong bytes %zu\n", owner, wrong_on_device(next, 0x33, SIZE));
    RT(cudaFree(next));
    RT(cudaFree(from));
}

int main(void) {
    needs_peers();
    for (int i = 0; i < 2; i++) {
        on(i);
        RT(cudaDeviceEnablePeerAccess(1 - i, 0));
        one[i] = new_stream(cudaStreamNonBlocking);
        two[i] = new_stream(cudaStreamNonBlocking);
        RT(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
    }
    for (int owner = 0; owner < 2; owner++) {
        for (int writer = 0; writer < 2; writer++)
            for (int freer = 0; freer < 2; freer++)
                freed(owner, writer, freer);
        passed_on(owner);
    }
    return 0;
}
