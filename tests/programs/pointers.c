/*
 * How code tells host from device memory: cudaPointerGetAttributes of every kind of pointer, and the error that is pending afterwards. It prints
 * what the runtime says (addresses only as "itself"), so with a backend that serves device memory the output is the bare driver's.
 */
#include "runtime.h"

static const char *type_name(enum cudaMemoryType type) {
    static const char *const names[] = {"unregistered", "host", "device", "managed"};
    return (unsigned)type < COUNT_OF(names) ? names[type] : "?";
}

static const char *address_name(const void *said, const void *pointer) {
    return said == pointer ? "itself" : said ? "another" : "NULL";
}

static void show(const char *what, const void *pointer) {
    struct cudaPointerAttributes said;
    memset(&said, 0x55, sizeof said);
    cudaError_t error = cudaPointerGetAttributes(&said, pointer);
    printf("%s: %s, %s, device %d, on the device %s, on the host %s, pending %s\n", what, cudaGetErrorName(error), type_name(said.type),
           said.device, address_name(said.devicePointer, pointer), address_name(said.hostPointer, pointer), cudaGetErrorName(cudaPeekAtLastError()));
}

static void others(void) {
    static char page[2 * 4096] __attribute__((aligned(4096)));
    char local;
    void *heap = malloc(100), *pinned, *managed;
    show("the stack", &local);
    show("malloc", heap);
    RT(cudaHostRegister(page, 4096, cudaHostRegisterDefault));
    show("registered", page + 100);
    RT(cudaHostUnregister(page));
    show("registered no more", page + 100);
    RT(cudaMallocHost(&pinned, 8192));
    show("pinned", (char *)pinned + 5000);
    RT(cudaFreeHost(pinned));
    RT(cudaMallocManaged(&managed, 8192, cudaMemAttachGlobal));
    show("managed", (char *)managed + 5000);
    RT(cudaFree(managed));
    free(heap);
    show("NULL", NULL);
}

int main(void) {
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    void *first, *device, *last, *async, *wrong;
    RT(cudaMalloc(&first, 4096)); /* neighbours that stay */
    RT(cudaMalloc(&device, 4096));
    RT(cudaMalloc(&last, 4096));
    RT(cudaMallocAsync(&async, 4096, stream));
    show("device", device);
    show("device, inside", (char *)device + 4095);
    show("stream-ordered", (char *)async + 7);
    RT(cudaFree(device));
    show("freed", device);
    show("freed, inside", (char *)device + 100);
    RT(cudaFreeAsync(async, stream));
    RT(cudaStreamSynchronize(stream));
    show("stream-ordered, freed", async);
    if (cudaMalloc(&wrong, (size_t)1 << 60) == cudaSuccess)
        die("so much memory");
    show("with an error pending", first);
    show("with an error pending, freed", device);
    printf("the error: %s\n", cudaGetErrorName(cudaGetLastError()));
    others();
    RT(cudaFree(first));
    RT(cudaFree(last));
    return 0;
}
