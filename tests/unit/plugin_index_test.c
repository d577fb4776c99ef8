/*
 * plugin_index_test.c: the index of a library's blocks against a byte-accurate model: what shares a byte is found, what does not
 * is entered, and a block is found by each address in it. A user would lose: the notice that a library gave two owners the same
 * bytes.
 */
#include "backends/plugin.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum { UNITS = 4096, UNIT = 256, MOST = 512 };

static const uint64_t base = 0x7f0000000000;
static short owner[UNITS]; /* 0: nobody, else the block's number + 1 */
static struct cuplug_plugin_block blocks[MOST];
static bool entered[MOST];
static int dropped;

static bool model_free(const struct cuplug_plugin_block *block) {
    for (uint64_t byte = block->address; byte < block->address + block->size; byte += UNIT)
        if (owner[(byte - base) / UNIT])
            return false;
    return true;
}

static void own(const struct cuplug_plugin_block *block, short who) {
    for (uint64_t byte = block->address; byte < block->address + block->size; byte += UNIT)
        owner[(byte - base) / UNIT] = who;
}

static bool of_even_number(struct cuplug_plugin_block *block, void *arg) {
    bool stays = (block - blocks) % 2 == 0;

    (void)arg;
    if (!stays) {
        own(block, 0);
        entered[block - blocks] = false;
        dropped++;
    }
    return stays;
}

static void count(struct cuplug_plugin_block *block, void *arg) {
    (void)block;
    ++*(int *)arg;
}

static void overlaps_are_found(void) {
    struct cuplug_plugin_block *root = NULL;
    uint64_t state = 7;

    for (int step = 0; step < 200000; step++) {
        int i = (int)(unit_random(&state) % MOST), there = 0, expected = 0;
        struct cuplug_plugin_block *block = &blocks[i], *found;

        if (entered[i]) {
            cuplug_plugin_index_remove(&root, block);
            own(block, 0);
            entered[i] = false;
            continue;
        }
        *block = (struct cuplug_plugin_block){.address = base + unit_random(&state) % (UNITS - 32) * UNIT,
                                              .size = 1 + unit_random(&state) % (32 * UNIT)};
        found = cuplug_plugin_index_insert(&root, block);
        CHECK(!found == model_free(block));
        CHECK(!found || (found->address < block->address + block->size && block->address < found->address + found->size));
        if (!found) {
            own(block, (short)(i + 1));
            entered[i] = true;
            CHECK(cuplug_plugin_index_find(root, block->address + unit_random(&state) % block->size) == block);
            CHECK(cuplug_plugin_index_find(root, block->address + block->size) != block);
        }
        if (step % 5000 == 0) {
            cuplug_plugin_index_filter(&root, of_even_number, NULL);
            cuplug_plugin_index_each(root, count, &there);
            for (int j = 0; j < MOST; j++)
                expected += entered[j];
            CHECK(there == expected);
        }
    }
    CHECK(dropped > 1000);
}

int main(void) {
    RUN(overlaps_are_found);
    return 0;
}
