/*
 * pages.h: the shim's own memory, from mmap alone. The program's malloc is never used: it may be replaced, broken by a fork, or itself call CUDA.
 */
#ifndef CUPLUG_PAGES_H
#define CUPLUG_PAGES_H

#include "lock.h"

#include <stddef.h>

/* `size` bytes of zeroed memory, NULL when there is none. */
void *cuplug_pages_map(size_t size);
void cuplug_pages_unmap(void *memory, size_t size);

/* Objects of one size, taken from chunks of pages that are never given back. The owner's lock guards it. */
struct cuplug_slab {
    size_t object_size; /* at least a pointer */
    void *free;         /* singly linked through the first word */
    char *chunk;        /* the rest of the newest chunk */
    size_t left;
};

/* A zeroed object, NULL when there is no memory. */
void *cuplug_slab_take(struct cuplug_slab *slab);
void cuplug_slab_give(struct cuplug_slab *slab, void *object);

#endif
