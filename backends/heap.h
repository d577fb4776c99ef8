/*
 * heap.h: the book-keeping of sub-allocation: segments cut into blocks, best fit among free blocks, immediate coalescing. It makes no driver
 * call and takes no lock; whoever owns the heap guards it.
 *
 * A block is live, waiting (freed, its bytes may still be in use: it merges with nobody), or free in a list. A list holds blocks that its owner may
 * hand out under the same condition: everybody's, or one stream's. Neighbours merge within a list only; the merged block keeps the higher marks.
 */
#ifndef CUPLUG_HEAP_H
#define CUPLUG_HEAP_H

#include "shim/pages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct cuplug_segment {
    uint64_t base;
    size_t size;
    size_t live;  /* bytes of it that its owner counts as live, see cuplug_heap_lives */
    time_t since; /* … if there are none: the owner's time when that came about */
    struct cuplug_segment *next;
    struct cuplug_heap_block *first;
    struct cuplug_heap_block **landmarks; /* for look-ups by address, made by the first: see cuplug_heap_find */
};

enum cuplug_block_state { CUPLUG_BLOCK_LIVE, CUPLUG_BLOCK_WAITING, CUPLUG_BLOCK_FREE };

/* What an allocation and a free of a block that a thread keeps look at comes first, and is one cache line. */
struct cuplug_heap_block {
    uint64_t address;
    size_t size;
    struct cuplug_heap_block *newer, *older; /* a queue: the pool's waiting blocks, or the list's blocks by age; what a thread keeps is linked by `newer` alone */
    uint64_t mark;                           /* of the context's fence */
    enum cuplug_block_state state;
    bool shared; /* live: another process may use it */
    signed char class; /* live: the cache's size class that it was taken for, -1: none */
    struct cuplug_segment *segment; /* NULL: the descriptor describes nothing now */
    struct cuplug_list *list;                /* where it is free */
    struct cuplug_heap_block *before, *after; /* by address, within the segment */
    struct cuplug_heap_block *left, *right;  /* the list's tree */
    uint64_t stream_mark;                    /* of the list's stream's fence */
    time_t since;                            /* free: the owner's time when it was freed, or the larger part of it */
} __attribute__((aligned(64)));

struct cuplug_queue {
    struct cuplug_heap_block *oldest, *newest;
    size_t bytes, blocks;
};

struct cuplug_list {
    struct cuplug_heap_block *root; /* a treap ordered by size, then address */
    struct cuplug_queue queue;      /* by mark, oldest first; used if `aged` */
    bool aged;
};

struct cuplug_heap {
    struct cuplug_slab blocks, segments_slab;
    struct cuplug_segment *segments;
    size_t reserved; /* bytes in segments */
    size_t empty;    /* … in those of which nothing is live */
    bool joins;      /* segments that lie next to each other are one */
};

/* The owner counts the block as live, or no longer. */
static inline void cuplug_heap_lives(struct cuplug_heap *heap, const struct cuplug_heap_block *block) {
    if (!block->segment->live)
        heap->empty -= block->segment->size;
    block->segment->live += block->size;
}

static inline void cuplug_heap_dies(struct cuplug_heap *heap, struct cuplug_heap_block *block, time_t now) {
    block->since = now;
    block->segment->live -= block->size;
    if (block->segment->live)
        return;
    heap->empty += block->segment->size;
    block->segment->since = now;
}

void cuplug_heap_init(struct cuplug_heap *heap);

/* Puts a segment under management: one free block, in `list`. False without memory for the book-keeping. */
bool cuplug_heap_add(struct cuplug_heap *heap, struct cuplug_list *list, uint64_t base, size_t size);

/* Takes the smallest block of `list` that holds `size` bytes (a multiple of 512) at `alignment` (a power of two, at least 512), cuts it to size and
 * makes it live. NULL if there is none or no memory for the book-keeping. */
struct cuplug_heap_block *cuplug_heap_take(struct cuplug_heap *heap, struct cuplug_list *list, size_t size, size_t alignment);

/* The same from this free block of a list, which has room. */
bool cuplug_heap_has_room(const struct cuplug_heap_block *block, size_t size, size_t alignment);
struct cuplug_heap_block *cuplug_heap_take_from(struct cuplug_heap *heap, struct cuplug_heap_block *block, size_t size, size_t alignment);

/* Frees a live or waiting block into `list`, merging it with its free neighbours there. */
void cuplug_heap_give(struct cuplug_heap *heap, struct cuplug_list *list, struct cuplug_heap_block *block);

/* Takes a free block out of its list again; it is live afterwards. */
void cuplug_heap_withdraw(struct cuplug_heap_block *block);

/* Takes one segment that is free as a whole and lies in `list` out of the heap; with `before`, one of which nothing has been live since then. False if there is
 * none. */
bool cuplug_heap_remove(struct cuplug_heap *heap, struct cuplug_list *list, time_t before, uint64_t *base, size_t *size);

/* Takes `size` bytes from `base` on, which lie in this free block, out of the heap; what is left around them is free as before, in a segment on each side.
 * False without memory for the book-keeping. */
bool cuplug_heap_cut_out(struct cuplug_heap *heap, struct cuplug_heap_block *block, uint64_t base, size_t size);

/* The segment that holds `address`, NULL if none does. */
struct cuplug_segment *cuplug_heap_segment_of(const struct cuplug_heap *heap, uint64_t address);

/* The block of the segment that holds `address`, which lies in it, whatever its state. For questions about pointers: allocations and frees keep
 * nothing up to date for it, so the first look-up of a segment walks along its blocks, and later ones find the landmarks that it left. */
struct cuplug_heap_block *cuplug_heap_find(struct cuplug_segment *segment, uint64_t address);

/* Forgets everything. Lists and queues over it are void. */
void cuplug_heap_clear(struct cuplug_heap *heap);

void cuplug_queue_push(struct cuplug_queue *queue, struct cuplug_heap_block *block);
void cuplug_queue_drop(struct cuplug_queue *queue, struct cuplug_heap_block *block);

#endif
