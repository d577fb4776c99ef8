/*
 * eager.c: an allocator library in PyTorch's form that reuses as early as that form allows and earlier: what was freed last is
 * handed out first, whatever stream or work it was for. Whoever gives it a block that the device still uses loses data. The
 * functions that free take fewer arguments in older forms.
 */
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>

typedef struct kept {
    CUdeviceptr pointer;
    size_t size;
    int device;
} kept_t;

enum { MOST = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_t kept[MOST], given[MOST]; /* freed; handed out, for the frees that are not told a size */
static int kept_count, given_count;

void *eager_alloc(size_t size, int device, CUstream stream);
void eager_free(void *pointer, size_t size, int device, CUstream stream);
void eager_free_ptr(void *pointer);
void eager_free_ptr_size(void *pointer, size_t size);
void eager_free_ptr_stream(void *pointer, CUstream stream);
void eager_free_ptr_size_stream(void *pointer, size_t size, CUstream stream);

void *eager_alloc(size_t size, int device, CUstream stream) {
    CUdeviceptr pointer = 0;

    (void)stream;
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
        given[given_count++] = (kept_t){pointer, size, device};
    pthread_mutex_unlock(&lock);
    return (void *)pointer;
}

static void take_back(CUdeviceptr pointer) {
    kept_t found = {0, 0, 0};

    pthread_mutex_lock(&lock);
    for (int i = given_count - 1; i >= 0 && !found.pointer; i--)
        if (given[i].pointer == pointer) {
            found = given[i];
            given[i] = given[--given_count];
        }
    if (found.pointer && kept_count < MOST) {
        kept[kept_count++] = found;
        pointer = 0;
    }
    pthread_mutex_unlock(&lock);
    if (pointer)
        cuMemFree(pointer);
}

void eager_free(void *pointer, size_t size, int device, CUstream stream) {
    (void)size, (void)device, (void)stream;
    take_back((CUdeviceptr)pointer);
}

void eager_free_ptr(void *pointer) {
    take_back((CUdeviceptr)pointer);
}

void eager_free_ptr_size(void *pointer, size_t size) {
    (void)size;
    take_back((CUdeviceptr)pointer);
}

void eager_free_ptr_stream(void *pointer, CUstream stream) {
    (void)stream;
    take_back((CUdeviceptr)pointer);
}

void eager_free_ptr_size_stream(void *pointer, size_t size, CUstream stream) {
    (void)size, (void)stream;
    take_back((CUdeviceptr)pointer);
}
