/*
 * eager.c: an allocator library in PyTorch's form that reuses as early as that form allows and earlier: what was freed last is handed
 * out first, whatever stream or work it was for. Whoever gives it a block that the device still uses loses data. The functions that
 * free take fewer arguments in older forms; what they are told wrong, it says on stderr.
 */
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

typedef struct piece {
    CUdeviceptr pointer;
    size_t size;
    int device;
    CUstream stream;
} piece_t;

enum { MOST = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static piece_t kept[MOST], given[MOST]; /* freed; handed out */
static int kept_count, given_count;

void *eager_alloc(size_t size, int device, CUstream stream);
void eager_free(void *pointer, size_t size, int device, CUstream stream);
void eager_free_ptr(void *pointer);
void eager_free_ptr_size(void *pointer, size_t size);
void eager_free_ptr_size_device(void *pointer, size_t size, int device);
void eager_free_ptr_stream(void *pointer, CUstream stream);
void eager_free_ptr_size_stream(void *pointer, size_t size, CUstream stream);

void *eager_alloc(size_t size, int device, CUstream stream) {
    CUdeviceptr pointer = 0;

    pthread_mutex_lock(&lock);
    for (int i = kept_count - 1; i >= 0 && !pointer; i--)
        if (kept[i].size == size && kept[i].device == device) {
            pointer = kept[i].pointer;
            kept[i] = kept[--kept_count];
        }
    pthread_mutex_unlock(&lock);
    if (!pointer && cuMemAlloc(&pointer, size) != CUDA_SUCCESS)
        return NULL;
    pthread_mutex_lock(&lock);
    if (given_count < MOST)
        given[given_count++] = (piece_t){pointer, size, device, stream};
    pthread_mutex_unlock(&lock);
    return (void *)pointer;
}

/* A size of 0, a device of -1 are not told; a stream of NULL is not told, or gone. */
static void take_back(void *memory, size_t size, int device, CUstream stream) {
    CUdeviceptr pointer = (CUdeviceptr)memory;
    piece_t found = {0};

    pthread_mutex_lock(&lock);
    for (int i = given_count - 1; i >= 0 && !found.pointer; i--)
        if (given[i].pointer == pointer) {
            found = given[i];
            given[i] = given[--given_count];
        }
    if ((size && size != found.size) || (device >= 0 && device != found.device) || (stream && stream != found.stream))
        fprintf(stderr, "eager: told size %zu, device %d, stream %p of what has %zu, %d, %p\n", size, device, (void *)stream, found.size,
                found.device, (void *)found.stream);
    if (found.pointer && kept_count < MOST) {
        kept[kept_count++] = found;
        pointer = 0;
    }
    pthread_mutex_unlock(&lock);
    if (pointer && cuMemFree(pointer) != CUDA_SUCCESS)
        fprintf(stderr, "eager: told to free what is not allocated\n");
}

void eager_free(void *pointer, size_t size, int device, CUstream stream) {
    take_back(pointer, size, device, stream);
}

void eager_free_ptr(void *pointer) {
    take_back(pointer, 0, -1, NULL);
}

void eager_free_ptr_size(void *pointer, size_t size) {
    take_back(pointer, size, -1, NULL);
}

void eager_free_ptr_size_device(void *pointer, size_t size, int device) {
    take_back(pointer, size, device, NULL);
}

void eager_free_ptr_stream(void *pointer, CUstream stream) {
    take_back(pointer, 0, -1, stream);
}

void eager_free_ptr_size_stream(void *pointer, size_t size, CUstream stream) {
    take_back(pointer, size, -1, stream);
}
