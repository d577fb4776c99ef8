/*
 * heap_tree.h: a treap of free blocks ordered by size, then address: the smallest that fits, lowest first, in O(log n). Priorities come from the
 * address, so the shape does not depend on the order of operations.
 */
#ifndef CUPLUG_HEAP_TREE_H
#define CUPLUG_HEAP_TREE_H

#include "heap.h"

void cuplug_tree_insert(struct cuplug_heap_block **root, struct cuplug_heap_block *block);
void cuplug_tree_remove(struct cuplug_heap_block **root, struct cuplug_heap_block *block);

/* The first block that is not before (size, address) in the order, NULL if there is none. */
struct cuplug_heap_block *cuplug_tree_from(struct cuplug_heap_block *root, size_t size, uint64_t address);

/* The size of the largest, 0 if there is none. */
size_t cuplug_tree_largest(const struct cuplug_heap_block *root);

#endif
