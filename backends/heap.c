/*
 * heap.c: see heap.h. Owns the blocks' and segments' descriptors (from slabs), never the memory they describe.
 */
#include "heap.h"

#include "heap_tree.h"

#include <string.h>

enum {
    TRIES = 8,          /* blocks looked at for an alignment that costs less than the worst case */
    LANDMARK = 64 << 10 /* bytes from one landmark to the next: at most 128 blocks to walk */
};

void cuplug_queue_push(struct cuplug_queue *queue, struct cuplug_heap_block *block) {
    block->older = queue->newest;
    block->newer = NULL;
    if (queue->newest)
        queue->newest->newer = block;
    else
        queue->oldest = block;
    queue->newest = block;
    queue->bytes += block->size;
    queue->blocks++;
}

void cuplug_queue_drop(struct cuplug_queue *queue, struct cuplug_heap_block *block) {
    if (block->older)
        block->older->newer = block->newer;
    else
        queue->oldest = block->newer;
    if (block->newer)
        block->newer->older = block->older;
    else
        queue->newest = block->older;
    queue->bytes -= block->size;
    queue->blocks--;
}

void cuplug_heap_init(struct cuplug_heap *heap) {
    heap->blocks.object_size = sizeof(struct cuplug_heap_block);
    heap->segments_slab.object_size = sizeof(struct cuplug_segment);
}

static size_t landmark_bytes(const struct cuplug_segment *segment) {
    return (segment->size / LANDMARK + 1) * sizeof *segment->landmarks;
}

static void enlist(struct cuplug_list *list, struct cuplug_heap_block *block) {
    block->state = CUPLUG_BLOCK_FREE;
    block->list = list;
    cuplug_tree_insert(&list->root, block);
    if (list->aged)
        cuplug_queue_push(&list->queue, block);
}

void cuplug_heap_withdraw(struct cuplug_heap_block *block) {
    cuplug_tree_remove(&block->list->root, block);
    if (block->list->aged)
        cuplug_queue_drop(&block->list->queue, block);
    block->list = NULL;
    block->state = CUPLUG_BLOCK_LIVE;
}

/* A landmark may still lead to the descriptor afterwards. */
static void discard(struct cuplug_heap *heap, struct cuplug_heap_block *block) {
    block->segment = NULL;
    cuplug_slab_give(&heap->blocks, block);
}

static void discard_segment(struct cuplug_heap *heap, struct cuplug_segment *segment) {
    cuplug_pages_unmap(segment->landmarks, landmark_bytes(segment));
    cuplug_slab_give(&heap->segments_slab, segment);
}

bool cuplug_heap_add(struct cuplug_heap *heap, struct cuplug_list *list, uint64_t base, size_t size) {
    struct cuplug_segment *segment = cuplug_slab_take(&heap->segments_slab);
    struct cuplug_heap_block *block = segment ? cuplug_slab_take(&heap->blocks) : NULL;

    if (!block) {
        if (segment)
            cuplug_slab_give(&heap->segments_slab, segment);
        return false;
    }
    *segment = (struct cuplug_segment){.base = base, .size = size, .next = heap->segments, .first = block};
    heap->segments = segment;
    heap->reserved += size;
    heap->empty += size;
    block->address = base;
    block->size = size;
    block->segment = segment;
    enlist(list, block);
    return true;
}

/* Cuts a live block in two; the new upper part is live as well and has the same marks. */
static struct cuplug_heap_block *cut(struct cuplug_heap *heap, struct cuplug_heap_block *block, size_t size) {
    struct cuplug_heap_block *upper = cuplug_slab_take(&heap->blocks);

    if (!upper)
        return NULL;
    *upper = *block;
    upper->address += size;
    upper->size -= size;
    upper->before = block;
    if (upper->after)
        upper->after->before = upper;
    block->after = upper;
    block->size = size;
    return upper;
}

static size_t lead(const struct cuplug_heap_block *block, size_t alignment) {
    return (size_t)(-block->address & (alignment - 1));
}

bool cuplug_heap_has_room(const struct cuplug_heap_block *block, size_t size, size_t alignment) {
    return lead(block, alignment) + size <= block->size;
}

static struct cuplug_heap_block *best_fit(const struct cuplug_list *list, size_t size, size_t alignment) {
    struct cuplug_heap_block *block = cuplug_tree_from(list->root, size, 0);

    for (int tries = 0; block && tries < TRIES; tries++) {
        if (cuplug_heap_has_room(block, size, alignment))
            return block;
        block = cuplug_tree_from(list->root, block->size, block->address + 1);
    }
    return block ? cuplug_tree_from(list->root, size + alignment - 512, 0) : NULL;
}

struct cuplug_heap_block *cuplug_heap_take_from(struct cuplug_heap *heap, struct cuplug_heap_block *block, size_t size, size_t alignment) {
    struct cuplug_list *list = block->list;
    struct cuplug_heap_block *rest;
    size_t skip = lead(block, alignment);

    cuplug_heap_withdraw(block);
    if (skip) {
        rest = cut(heap, block, skip);
        enlist(list, block);
        if (!rest)
            return NULL;
        block = rest;
    }
    if (block->size > size) {
        rest = cut(heap, block, size); /* without memory to describe the rest, the block just stays larger */
        if (rest)
            enlist(list, rest);
    }
    return block;
}

struct cuplug_heap_block *cuplug_heap_take(struct cuplug_heap *heap, struct cuplug_list *list, size_t size, size_t alignment) {
    struct cuplug_heap_block *block = best_fit(list, size, alignment);

    return block ? cuplug_heap_take_from(heap, block, size, alignment) : NULL;
}

static bool mergeable(const struct cuplug_heap_block *block, const struct cuplug_list *list) {
    return block && block->state == CUPLUG_BLOCK_FREE && block->list == list;
}

/* Joins two live neighbours; the lower one stays. */
static struct cuplug_heap_block *join(struct cuplug_heap *heap, struct cuplug_heap_block *low, struct cuplug_heap_block *high) {
    low->size += high->size;
    low->after = high->after;
    if (low->after)
        low->after->before = low;
    if (high->mark > low->mark)
        low->mark = high->mark;
    if (high->stream_mark > low->stream_mark)
        low->stream_mark = high->stream_mark;
    discard(heap, high);
    return low;
}

void cuplug_heap_give(struct cuplug_heap *heap, struct cuplug_list *list, struct cuplug_heap_block *block) {
    if (mergeable(block->after, list)) {
        cuplug_heap_withdraw(block->after);
        block = join(heap, block, block->after);
    }
    if (mergeable(block->before, list)) {
        cuplug_heap_withdraw(block->before);
        block = join(heap, block->before, block);
    }
    enlist(list, block);
}

bool cuplug_heap_remove(struct cuplug_heap *heap, struct cuplug_list *list, uint64_t *base, size_t *size) {
    for (struct cuplug_segment **link = &heap->segments; *link; link = &(*link)->next) {
        struct cuplug_segment *segment = *link;
        struct cuplug_heap_block *block = segment->first;

        if (!mergeable(block, list) || block->size != segment->size)
            continue;
        cuplug_heap_withdraw(block);
        discard(heap, block);
        *base = segment->base;
        *size = segment->size;
        heap->reserved -= segment->size;
        heap->empty -= segment->size;
        *link = segment->next;
        discard_segment(heap, segment);
        return true;
    }
    return false;
}

struct cuplug_segment *cuplug_heap_segment_of(const struct cuplug_heap *heap, uint64_t address) {
    struct cuplug_segment *segment = heap->segments;

    while (segment && (address < segment->base || address - segment->base >= segment->size))
        segment = segment->next;
    return segment;
}

/* Where to start walking: the nearest landmark at or below the address that still is one. Its descriptor may have come to describe another block
 * since, or none; whatever it says of itself is true, as descriptors are never unmapped. */
static struct cuplug_heap_block *start(const struct cuplug_segment *segment, uint64_t address) {
    for (size_t i = (address - segment->base) / LANDMARK + 1; segment->landmarks && i-- > 0;) {
        struct cuplug_heap_block *block = segment->landmarks[i];

        if (block && block->segment == segment && block->address <= address)
            return block;
    }
    return segment->first;
}

struct cuplug_heap_block *cuplug_heap_find(struct cuplug_segment *segment, uint64_t address) {
    struct cuplug_heap_block *block;
    size_t mark;

    if (!segment->landmarks) /* without memory for them it is a long walk each time */
        segment->landmarks = cuplug_pages_map(landmark_bytes(segment));
    block = start(segment, address);
    mark = (block->address - segment->base + LANDMARK - 1) / LANDMARK; /* the first that the walk comes by */
    for (;; block = block->after) {
        uint64_t end = block->address + block->size;

        for (; segment->landmarks && segment->base + mark * LANDMARK < end && segment->base + mark * LANDMARK <= address; mark++)
            segment->landmarks[mark] = block;
        if (address < end)
            return block;
    }
}

void cuplug_heap_clear(struct cuplug_heap *heap) {
    while (heap->segments) {
        struct cuplug_segment *segment = heap->segments;

        for (struct cuplug_heap_block *block = segment->first, *after; block; block = after) {
            after = block->after;
            discard(heap, block);
        }
        heap->segments = segment->next;
        discard_segment(heap, segment);
    }
    heap->reserved = heap->empty = 0;
}
