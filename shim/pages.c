/*
 * pages.c: see pages.h. Keeps no state of its own.
 */
#include "pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { CHUNK = 64 << 10 };

void *cuplug_pages_map(size_t size) {
    int saved = errno;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

void cuplug_pages_unmap(void *memory, size_t size) {
    int saved = errno;

    if (memory)
        munmap(memory, size);
    errno = saved;
}

void *cuplug_slab_take(struct cuplug_slab *slab) {
    void *object = slab->free;

    if (object) {
        memcpy(&slab->free, object, sizeof(void *));
        memset(object, 0, slab->object_size);
        return object;
    }
    if (slab->left < slab->object_size) {
        char *chunk = cuplug_pages_map(CHUNK);

        if (!chunk)
            return NULL;
        slab->chunk = chunk;
        slab->left = CHUNK;
    }
    object = slab->chunk;
    slab->chunk += slab->object_size;
    slab->left -= slab->object_size;
    return object;
}

void cuplug_slab_give(struct cuplug_slab *slab, void *object) {
    memcpy(object, &slab->free, sizeof(void *));
    slab->free = object;
}
