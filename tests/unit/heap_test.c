/*
 * heap_test.c: sub-allocation against a byte-accurate model: no byte has two owners, none is lost, the smallest block that fits is taken, neighbours
 * merge. A user would lose: data (overlap), memory (loss, fragmentation).
 */
#include "backends/heap.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum { GRAIN = 512, SEGMENTS = 8, SEGMENT = 4 << 20, GRAINS = SEGMENT / GRAIN, MOST = 2000 };

static const uint64_t base = 0x7f0000000000;
static unsigned short owner[SEGMENTS][GRAINS]; /* 0: free */

static uint64_t base_of(int segment) {
    return base + (uint64_t)segment * 2 * SEGMENT; /* with gaps, so segments never merge */
}

/* Sets the owner of a block's grains; true if all of them had `before`. */
static bool own(const struct cuplug_heap_block *block, unsigned short before, unsigned short after) {
    int segment = (int)((block->address - base) / (2 * SEGMENT));
    size_t from = (block->address - base_of(segment)) / GRAIN;
    bool clean = true;

    for (size_t i = from; i < from + block->size / GRAIN; i++) {
        clean &= owner[segment][i] == before;
        owner[segment][i] = after;
    }
    return clean;
}

/* The smallest run of free grains that holds `grains` at `alignment` grains, 0 if there is none. */
static size_t smallest_fit(size_t grains, size_t alignment) {
    size_t best = 0;

    for (int s = 0; s < SEGMENTS; s++)
        for (size_t i = 0, run; i < GRAINS; i += run ? run : 1) {
            size_t lead;

            for (run = 0; i + run < GRAINS && !owner[s][i + run]; run++)
                ;
            lead = -(base_of(s) / GRAIN + i) & (alignment - 1);
            if (run && lead + grains <= run && (!best || run < best))
                best = run;
        }
    return best;
}

/* Is the block that a look-up finds the one whose bytes the model gives to the address? */
static bool found(struct cuplug_heap *heap, struct cuplug_heap_block *const *live, uint64_t address) {
    struct cuplug_segment *segment = cuplug_heap_segment_of(heap, address);
    struct cuplug_heap_block *block = segment ? cuplug_heap_find(segment, address) : NULL;
    unsigned short expected = segment ? owner[(address - base) / (2 * SEGMENT)][(address - segment->base) / GRAIN] : 0;

    if (!segment)
        return (address - base) % (2 * SEGMENT) >= SEGMENT;
    if (!block || block->segment != segment || address < block->address || address - block->address >= block->size)
        return false;
    return expected ? block == live[expected - 1] : block->state == CUPLUG_BLOCK_FREE;
}

static void random_operations_keep_every_byte_in_one_place(void) {
    struct cuplug_heap heap = {0};
    struct cuplug_list ready = {0};
    struct cuplug_heap_block *live[MOST] = {0};
    uint64_t seed = 3, b;
    size_t size, checked = 0;

    cuplug_heap_init(&heap);
    for (int s = 0; s < SEGMENTS; s++)
        CHECK(cuplug_heap_add(&heap, &ready, base_of(s), SEGMENT));
    for (int step = 0; step < 200000; step++) {
        unsigned i = (unsigned)(unit_random(&seed) % MOST);

        if (step % 3 == 0)
            CHECK(found(&heap, live, base + unit_random(&seed) % ((uint64_t)SEGMENTS * 2 * SEGMENT)));
        if (live[i]) {
            CHECK(own(live[i], (unsigned short)(i + 1), 0));
            cuplug_heap_give(&heap, &ready, live[i]);
            live[i] = NULL;
        } else {
            size_t grains = 1 + unit_random(&seed) % (unit_random(&seed) % 8 ? 16 : 600);
            size_t alignment = (size_t)1 << (unit_random(&seed) % 4 ? 0 : unit_random(&seed) % 8);
            bool check = step % 50 == 0;
            size_t fit = check ? smallest_fit(grains, alignment) : 0;

            live[i] = cuplug_heap_take(&heap, &ready, grains * GRAIN, alignment * GRAIN);
            if (check && alignment == 1) {
                CHECK((live[i] != NULL) == (fit != 0));
                checked++;
            }
            if (!live[i])
                continue;
            CHECK(live[i]->size == grains * GRAIN);
            CHECK(live[i]->address % (alignment * GRAIN) == 0);
            if (check && alignment == 1) { /* what it was cut from was the smallest that fits */
                size_t rest = live[i]->after && live[i]->after->state == CUPLUG_BLOCK_FREE ? live[i]->after->size / GRAIN : 0;

                CHECK(grains + rest == fit);
            }
            CHECK(own(live[i], 0, (unsigned short)(i + 1)));
        }
    }
    CHECK(checked > 500);
    for (uint64_t a = 0; a < (uint64_t)SEGMENTS * 2 * SEGMENT; a += 100 * GRAIN + 1)
        CHECK(found(&heap, live, base + a));
    for (int i = 0; i < MOST; i++)
        if (live[i])
            cuplug_heap_give(&heap, &ready, live[i]);
    for (int s = 0; s < SEGMENTS; s++) { /* everything has merged back into whole segments */
        CHECK(cuplug_heap_remove(&heap, &ready, 0, &b, &size));
        CHECK(size == SEGMENT);
    }
    CHECK(!cuplug_heap_remove(&heap, &ready, 0, &b, &size));
    CHECK(heap.reserved == 0 && !ready.root);
    CHECK(!cuplug_heap_segment_of(&heap, base));
}

static void exact_fits_and_the_last_byte_are_usable(void) {
    struct cuplug_heap heap = {0};
    struct cuplug_list ready = {0};

    cuplug_heap_init(&heap);
    CHECK(cuplug_heap_add(&heap, &ready, base, SEGMENT));
    for (int i = 0; i < GRAINS; i++)
        CHECK(cuplug_heap_take(&heap, &ready, GRAIN, GRAIN));
    CHECK(!cuplug_heap_take(&heap, &ready, GRAIN, GRAIN));
}

/* Blocks of another list, waiting blocks and live blocks do not merge; marks go to the merged block, the higher one each. */
static void only_neighbours_of_one_list_merge(void) {
    struct cuplug_heap heap = {0};
    struct cuplug_list ready = {0}, stream = {.aged = true};
    struct cuplug_heap_block *block[4];

    cuplug_heap_init(&heap);
    CHECK(cuplug_heap_add(&heap, &ready, base, 4 * GRAIN));
    for (int i = 0; i < 4; i++) {
        block[i] = cuplug_heap_take(&heap, &ready, GRAIN, GRAIN);
        CHECK(block[i] && block[i]->address == base + (uint64_t)i * GRAIN);
        if (!block[i])
            return;
        block[i]->mark = (uint64_t)(10 - i);
        block[i]->stream_mark = (uint64_t)i;
    }
    cuplug_heap_give(&heap, &stream, block[0]);
    cuplug_heap_give(&heap, &ready, block[2]);
    CHECK(!cuplug_heap_take(&heap, &ready, 2 * GRAIN, GRAIN));
    cuplug_heap_give(&heap, &stream, block[1]);
    CHECK(stream.root == block[0] && block[0]->size == 2 * GRAIN);
    CHECK(block[0]->mark == 10 && block[0]->stream_mark == 1);
    CHECK(stream.queue.blocks == 1 && stream.queue.bytes == 2 * GRAIN);
    CHECK(!cuplug_heap_take(&heap, &stream, 3 * GRAIN, GRAIN));
    cuplug_heap_give(&heap, &ready, block[3]);
    CHECK(cuplug_heap_take(&heap, &ready, 2 * GRAIN, GRAIN));
}

/* Four segments that lie next to each other are one; the middle of it goes, then its ends, and what was cut away is in nobody's way. */
static void joined_segments_can_be_cut_apart(void) {
    struct cuplug_list ready = {0};
    struct cuplug_heap heap = {.joins = true};
    struct cuplug_heap_block *all, *low, *high;

    cuplug_heap_init(&heap);
    for (int i = 0; i < 4; i++) { /* as the cache does it */
        struct cuplug_list fresh = {0};
        struct cuplug_heap_block *new;

        CHECK(cuplug_heap_add(&heap, &fresh, base + (uint64_t)i * SEGMENT, SEGMENT));
        new = fresh.root;
        cuplug_heap_withdraw(new);
        cuplug_heap_give(&heap, &ready, new);
    }
    CHECK(heap.segments && !heap.segments->next && heap.reserved == 4 * (size_t)SEGMENT);
    all = cuplug_heap_take(&heap, &ready, 4 * (size_t)SEGMENT, GRAIN);
    CHECK(all && all->address == base);
    CHECK(cuplug_heap_find(heap.segments, base + SEGMENT) == all);
    if (!all)
        return;
    cuplug_heap_give(&heap, &ready, all);
    CHECK(cuplug_heap_cut_out(&heap, ready.root, base + SEGMENT, SEGMENT));
    CHECK(heap.reserved == 3 * (size_t)SEGMENT && !cuplug_heap_segment_of(&heap, base + SEGMENT));
    low = cuplug_heap_take(&heap, &ready, SEGMENT, GRAIN);
    high = cuplug_heap_take(&heap, &ready, 2 * (size_t)SEGMENT, GRAIN);
    CHECK(low && low->address == base && high && high->address == base + 2 * (uint64_t)SEGMENT);
    if (!low || !high)
        return;
    CHECK(low->segment == cuplug_heap_segment_of(&heap, base) && cuplug_heap_find(low->segment, base + SEGMENT - 1) == low);
    CHECK(high->segment == cuplug_heap_segment_of(&heap, base + 3 * (uint64_t)SEGMENT) && high->segment != low->segment);
    CHECK(!low->after && !high->before);
    cuplug_heap_give(&heap, &ready, high);
    CHECK(cuplug_heap_cut_out(&heap, high, base + 2 * (uint64_t)SEGMENT, SEGMENT));
    CHECK(!cuplug_heap_segment_of(&heap, base + 2 * (uint64_t)SEGMENT) && cuplug_heap_segment_of(&heap, base + 3 * (uint64_t)SEGMENT));
    cuplug_heap_give(&heap, &ready, low);
    CHECK(cuplug_heap_cut_out(&heap, low, base, SEGMENT));
    CHECK(cuplug_heap_cut_out(&heap, ready.root, base + 3 * (uint64_t)SEGMENT, SEGMENT));
    CHECK(!heap.segments && !ready.root && !heap.reserved);
}

int main(void) {
    RUN(random_operations_keep_every_byte_in_one_place);
    RUN(exact_fits_and_the_last_byte_are_usable);
    RUN(only_neighbours_of_one_list_merge);
    RUN(joined_segments_can_be_cut_apart);
    return 0;
}
