/*
 * ranges.c — the allocations that do not lie in a device's pages (pinned and registered host memory, managed memory,
 * VMM mappings, memory of other processes), sorted by address. All locked.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static struct sim_alloc **range;
static size_t ranges, room;

/* Index of the first range that ends after address. */
static size_t position(uintptr_t address) {
    size_t low = 0, high = ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (range[middle]->base + range[middle]->span <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_alloc *sim_range_add(uintptr_t base, size_t size, enum sim_kind kind) {
    struct sim_alloc *alloc = calloc(1, sizeof(*alloc));
    alloc->base = base;
    alloc->size = alloc->span = size;
    alloc->kind = kind;
    alloc->id = ++sim.next_id;
    if (ranges == room) {
        room = room ? room * 2 : 64;
        range = realloc(range, room * sizeof(*range));
    }
    size_t at = position(base);
    memmove(range + at + 1, range + at, (ranges - at) * sizeof(*range));
    range[at] = alloc;
    ranges++;
    return alloc;
}

void sim_range_remove(struct sim_alloc *alloc) {
    size_t at = position(alloc->base);
    if (at == ranges || range[at] != alloc)
        return;
    memmove(range + at, range + at + 1, (ranges - at - 1) * sizeof(*range));
    ranges--;
    free(alloc);
}

struct sim_alloc *sim_range_overlap(uintptr_t address, size_t size) {
    size_t at = position(address);
    return at < ranges && range[at]->base < address + size ? range[at] : NULL;
}

struct sim_alloc *sim_range_find(uintptr_t address) {
    return sim_range_overlap(address, 1);
}

size_t sim_ranges_managed(void) {
    size_t bytes = 0;
    for (size_t i = 0; i < ranges; i++)
        bytes += range[i]->kind == SIM_MANAGED ? range[i]->span : 0;
    return bytes;
}
