/*
 * heap_tree.c: see heap_tree.h. Pure functions over the left and right links of blocks; the heap's owner holds the lock.
 */
#include "heap_tree.h"

static uint64_t priority(const struct cuplug_heap_block *block) {
    uint64_t h = block->address * 0x9e3779b97f4a7c15u;

    return h ^ h >> 29;
}

static bool before(const struct cuplug_heap_block *block, size_t size, uint64_t address) {
    return block->size != size ? block->size < size : block->address < address;
}

/* Splits a tree into what is before (size, address) and the rest. */
static void split(struct cuplug_heap_block *tree, size_t size, uint64_t address, struct cuplug_heap_block **low,
                  struct cuplug_heap_block **high) {
    while (tree) {
        if (before(tree, size, address)) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

void cuplug_tree_insert(struct cuplug_heap_block **root, struct cuplug_heap_block *block) {
    uint64_t rank = priority(block);

    while (*root && priority(*root) > rank)
        root = before(*root, block->size, block->address) ? &(*root)->right : &(*root)->left;
    split(*root, block->size, block->address, &block->left, &block->right);
    *root = block;
}

void cuplug_tree_remove(struct cuplug_heap_block **root, struct cuplug_heap_block *block) {
    struct cuplug_heap_block *low = block->left, *high = block->right;

    while (*root != block)
        root = before(*root, block->size, block->address) ? &(*root)->right : &(*root)->left;
    while (low && high) { /* merge the two halves into the hole */
        if (priority(low) > priority(high)) {
            *root = low;
            root = &low->right;
            low = low->right;
        } else {
            *root = high;
            root = &high->left;
            high = high->left;
        }
    }
    *root = low ? low : high;
}

struct cuplug_heap_block *cuplug_tree_from(struct cuplug_heap_block *root, size_t size, uint64_t address) {
    struct cuplug_heap_block *found = NULL;

    while (root) {
        if (before(root, size, address)) {
            root = root->right;
        } else {
            found = root;
            root = root->left;
        }
    }
    return found;
}

size_t cuplug_tree_largest(const struct cuplug_heap_block *root) {
    while (root && root->right)
        root = root->right;
    return root ? root->size : 0;
}
