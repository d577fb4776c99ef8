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

/* Landmarks are as many as the segment has room for; the next look-up makes them anew. */
static void forget_landmarks(struct cuplug_segment *segment) {
    cuplug_pages_unmap(segment->landmarks, landmark_bytes(segment));
    segment->landmarks = NULL;
}

/* The segment that ends where this one begins, made longer by it. */
static bool join_segment(struct cuplug_heap *heap, struct cuplug_list *list, uint64_t base, size_t size) {
    struct cuplug_segment *segment = heap->segments;
    struct cuplug_heap_block *last, *block;

    while (segment && segment->base + segment->size != base)
        segment = segment->next;
    block = segment ? cuplug_slab_take(&heap->blocks) : NULL;
    if (!block)
        return false;
    last = cuplug_heap_find(segment, base - 1);
    forget_landmarks(segment);
    *block = (struct cuplug_heap_block){.address = base, .size = size, .segment = segment, .before = last};
    last->after = block;
    segment->size += size;
    heap->reserved += size;
    if (!segment->live)
        heap->empty += size;
    enlist(list, block);
    return true;
}

bool cuplug_heap_add(struct cuplug_heap *heap, struct cuplug_list *list, uint64_t base, size_t size) {
    struct cuplug_segment *segment;
    struct cuplug_heap_block *block;

    if (heap->joins && join_segment(heap, list, base, size))
        return true;
    segment = cuplug_slab_take(&heap->segments_slab);
    block = segment ? cuplug_slab_take(&heap->blocks) : NULL;
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
    if (high->size > low->size)
        low->since = high->since;
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

bool cuplug_heap_remove(struct cuplug_heap *heap, struct cuplug_list *list, time_t before, uint64_t *base, size_t *size) {
    for (struct cuplug_segment **link = &heap->segments; *link; link = &(*link)->next) {
        struct cuplug_segment *segment = *link;
        struct cuplug_heap_block *block = segment->first;

        if (!mergeable(block, list) || block->size != segment->size || (before && segment->since > before))
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

/* A block that nobody has, out of its segment, which ends there; `upper` becomes what is left behind it. */
static void split_segment(struct cuplug_heap *heap, struct cuplug_heap_block *block, struct cuplug_segment *upper) {
    struct cuplug_segment *lower = block->segment;

    *upper = (struct cuplug_segment){
        .base = block->address + block->size,
        .size = (size_t)(lower->base + lower->size - block->address - block->size),
        .first = block->after,
        .next = heap->segments,
    };
    heap->segments = upper;
    lower->size = (size_t)(block->address - lower->base);
    block->before->after = NULL;
    block->after->before = NULL;
    for (struct cuplug_heap_block *each = block->after; each; each = each->after) {
        each->segment = upper;
        if (each->state == CUPLUG_BLOCK_LIVE)
            upper->live += each->size;
    }
    lower->live -= upper->live;
    upper->since = lower->since;
}

/* The same at an end of the segment, or all of it. */
static void shorten_segment(struct cuplug_heap *heap, struct cuplug_heap_block *block) {
    struct cuplug_segment **link = &heap->segments, *segment = block->segment;

    if (block->before)
        block->before->after = NULL;
    else
        segment->base += block->size, segment->first = block->after;
    if (block->after)
        block->after->before = NULL;
    segment->size -= block->size;
    if (segment->size)
        return;
    while (*link != segment)
        link = &(*link)->next;
    *link = segment->next;
    discard_segment(heap, segment);
}

bool cuplug_heap_cut_out(struct cuplug_heap *heap, struct cuplug_heap_block *block, uint64_t base, size_t size) {
    struct cuplug_segment *upper = cuplug_slab_take(&heap->segments_slab);
    struct cuplug_list *list = block->list;
    struct cuplug_heap_block *low = NULL, *high = NULL;
    struct cuplug_segment *segment;

    if (!upper)
        return false;
    cuplug_heap_withdraw(block);
    if (base > block->address) {
        low = block;
        block = cut(heap, low, (size_t)(base - low->address));
    }
    if (block && block->size > size)
        high = cut(heap, block, size);
    if (!block || block->size > size) { /* no descriptor */
        cuplug_slab_give(&heap->segments_slab, upper);
        cuplug_heap_give(heap, list, low ? low : block);
        if (low && block)
            cuplug_heap_give(heap, list, block);
        return false;
    }
    if (low)
        enlist(list, low);
    if (high)
        enlist(list, high);
    segment = block->segment;
    forget_landmarks(segment);
    heap->empty -= segment->live ? 0 : segment->size;
    if (block->before && block->after) {
        split_segment(heap, block, upper);
        heap->empty += (segment->live ? 0 : segment->size) + (upper->live ? 0 : upper->size);
    } else {
        heap->empty += segment->live ? 0 : segment->size - size;
        shorten_segment(heap, block);
        cuplug_slab_give(&heap->segments_slab, upper);
    }
    heap->reserved -= size;
    discard(heap, block);
    return true;
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
