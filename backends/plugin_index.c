/*
 * plugin_index.c: the blocks that a library handed out, by address, so that an answer which repeats or overlaps another is
 * noticed. A treap; pure functions, the lock is the caller's.
 */
#include "plugin.h"

typedef struct cuplug_plugin_block block_t;

static uint64_t priority(const block_t *block) {
    uint64_t h = block->address * 0x9e3779b97f4a7c15u;

    return h ^ h >> 29;
}

/* Splits a tree into what is below the address and the rest. */
static void split(block_t *tree, uint64_t address, block_t **low, block_t **high) {
    while (tree) {
        if (tree->address < address) {
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

/* The last block that begins at or below the address. */
static block_t *at_or_below(block_t *tree, uint64_t address) {
    block_t *found = NULL;

    while (tree) {
        if (tree->address <= address)
            found = tree;
        tree = tree->address <= address ? tree->right : tree->left;
    }
    return found;
}

static void insert(block_t **root, block_t *block) {
    uint64_t rank = priority(block);

    while (*root && priority(*root) > rank)
        root = (*root)->address < block->address ? &(*root)->right : &(*root)->left;
    split(*root, block->address, &block->left, &block->right);
    *root = block;
}

block_t *cuplug_plugin_index_insert(block_t **root, block_t *block) {
    block_t *last =
        at_or_below(*root, block->address + block->size - 1); /* none that overlaps begins later, none but it can reach so far */

    if (last && last->address + last->size > block->address)
        return last;
    insert(root, block);
    return NULL;
}

void cuplug_plugin_index_remove(block_t **root, block_t *block) {
    block_t *low = block->left, *high = block->right;

    while (*root != block)
        root = (*root)->address < block->address ? &(*root)->right : &(*root)->left;
    while (low && high) {
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

block_t *cuplug_plugin_index_find(block_t *root, uint64_t address) {
    block_t *block = at_or_below(root, address);

    return block && address - block->address < block->size ? block : NULL;
}

void cuplug_plugin_index_each(block_t *root, void (*visit)(block_t *block, void *arg), void *arg) {
    for (; root; root = root->right) {
        cuplug_plugin_index_each(root->left, visit, arg);
        visit(root, arg);
    }
}

void cuplug_plugin_index_filter(block_t **root, bool (*visit)(block_t *block, void *arg), void *arg) {
    block_t *rest = *root, *kept = NULL;

    while (rest) { /* turn the tree into a list along its right links, take the first off */
        block_t *block = rest;

        if (block->left) {
            rest = block->left;
            block->left = rest->right;
            rest->right = block;
            continue;
        }
        rest = block->right;
        if (visit(block, arg))
            insert(&kept, block);
    }
    *root = kept;
}
