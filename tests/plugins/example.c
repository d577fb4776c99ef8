/*
 * example.c: a complete plugin, to start from: it keeps what the program frees and hands it out again for the same (rounded) size
 * in the same context.
 *
 *     cc -O2 -fPIC -shared -fvisibility=hidden -I<where cuplug/backend.h is> example.c -o example.so -lcuda
 *     CUPLUG_BACKEND=$PWD/example.so:keep=64 LD_PRELOAD=/opt/cuplug/libcuplug.so ./your-program
 *
 * Its one option: keep=N, how many freed blocks to keep at most.
 *
 * A freed block arrives only once the device is done with it (CUPLUG_BACKEND_ORDERS_FREES is not set), so it can go to any next
 * owner at once. One mutex guards everything, and no CUDA call is made under it.
 */
#define CUPLUG_PLUGIN
#include <cuplug/backend.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 64 };

/* What the driver gave, from then until it has it back. */
struct piece {
    struct piece *next;
    CUdeviceptr pointer;
    size_t size;
    int free;
    CUdevice device;
    struct cuplug_context *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *pieces;
static size_t held[DEVICES]; /* bytes in pieces, by device */
static int kept, most_kept = 1024;

static size_t rounded(size_t size) {
    size_t grain = size < ((size_t)1 << 20) ? 512 : (size_t)2 << 20;

    return size > SIZE_MAX - grain ? SIZE_MAX : (size + grain - 1) / grain * grain;
}

/* Takes the first free piece of the context out of the list that has this size; 0 matches any. */
static struct piece *take(struct cuplug_context *context, size_t size) {
    struct piece *found = NULL;

    pthread_mutex_lock(&lock);
    for (struct piece **link = &pieces; *link; link = &(*link)->next) {
        struct piece *piece = *link;

        if (piece->free && piece->context == context && (!size || piece->size == size)) {
            found = piece;
            *link = piece->next;
            held[piece->device % DEVICES] -= piece->size;
            kept--;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void put(struct piece *piece) {
    pthread_mutex_lock(&lock);
    piece->next = pieces;
    pieces = piece;
    held[piece->device % DEVICES] += piece->size;
    kept += piece->free;
    pthread_mutex_unlock(&lock);
}

static CUresult example_alloc(void *self, const struct cuplug_request *request, struct cuplug_block *block) {
    size_t size = rounded(request->size);
    struct piece *piece = take(request->context, size);
    CUresult result;

    (void)self;
    if (!piece) {
        piece = calloc(1, sizeof *piece);
        if (!piece)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = cuMemAlloc(&piece->pointer, size); /* passes to the driver; request->context is current */
        if (result != CUDA_SUCCESS) {
            free(piece);
            return result;
        }
        piece->size = size;
        piece->device = request->device;
        piece->context = request->context;
    }
    piece->free = 0;
    put(piece);
    block->pointer = piece->pointer;
    block->cookie = piece;
    return CUDA_SUCCESS;
}

/* Out of the list, back to the driver; in the list again if the driver does not take it. Its context is current. */
static size_t give_back(struct piece *piece) {
    size_t size = piece->size;

    if (cuMemFree(piece->pointer) != CUDA_SUCCESS) {
        put(piece);
        return 0;
    }
    free(piece);
    return size;
}

static CUresult example_free(void *self, const struct cuplug_block *block, const struct cuplug_release *release) {
    struct piece *piece = block->cookie;
    int full;

    (void)self, (void)release;
    pthread_mutex_lock(&lock);
    piece->free = 1;
    full = ++kept > most_kept;
    pthread_mutex_unlock(&lock);
    if (full && (piece = take(block->context, 0)))
        give_back(piece);
    return CUDA_SUCCESS;
}

static CUresult example_open(const char *options, void **self) {
    *self = NULL;
    if (strncmp(options, "keep=", 5) == 0)
        most_kept = atoi(options + 5);
    else if (*options)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static int example_owns(void *self, CUdeviceptr pointer) {
    int found = 0;

    (void)self;
    pthread_mutex_lock(&lock);
    for (struct piece *piece = pieces; piece && !found; piece = piece->next)
        found = pointer - piece->pointer < piece->size;
    pthread_mutex_unlock(&lock);
    return found;
}

static size_t example_available(void *self, struct cuplug_context *context, size_t left) {
    (void)self;
    pthread_mutex_lock(&lock);
    for (struct piece *piece = pieces; piece; piece = piece->next)
        left += piece->free && piece->context == context ? piece->size : 0;
    pthread_mutex_unlock(&lock);
    return left;
}

static size_t example_trim(void *self, CUdevice device, struct cuplug_context *context) {
    struct piece *piece;
    size_t given = 0, size = 1;

    (void)self, (void)device;
    while (size && (piece = take(context, 0)))
        given += size = give_back(piece);
    return given;
}

static void example_context_lost(void *self, struct cuplug_context *context) {
    (void)self;
    pthread_mutex_lock(&lock);
    for (struct piece **link = &pieces; *link;) {
        struct piece *piece = *link;

        if (piece->context != context) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        held[piece->device % DEVICES] -= piece->size;
        kept -= piece->free;
        free(piece);
    }
    pthread_mutex_unlock(&lock);
}

static size_t example_reserved(void *self, CUdevice device) {
    size_t bytes;

    (void)self;
    pthread_mutex_lock(&lock);
    bytes = held[device % DEVICES];
    pthread_mutex_unlock(&lock);
    return bytes;
}

static const struct cuplug_backend_ops example = {
    .abi_version = CUPLUG_BACKEND_ABI,
    .struct_size = sizeof example,
    .name = "example",
    .alloc = example_alloc,
    .free = example_free,
    .open = example_open,
    .owns = example_owns,
    .available = example_available,
    .trim = example_trim,
    .context_lost = example_context_lost,
    .reserved = example_reserved,
};

const struct cuplug_backend_ops *cuplug_backend_open(uint32_t abi_version) {
    return abi_version == CUPLUG_BACKEND_ABI ? &example : NULL;
}
