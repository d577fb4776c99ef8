/*
 * pages.c — a device's memory: one reserved address range over one memory file, taken in 2 MiB pages.
 *
 * Small allocations share pages at 512 B spacing (pages are never shared between owners: contexts, pools); larger ones
 * take whole pages. Always first fit, so that freed addresses come back at once. A page that is given back is emptied
 * and made inaccessible; a unit is overwritten with 0xDD. All locked.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNITS (SIM_PAGE / SIM_UNIT)

CUresult sim_pages_setup(struct sim_device *d) {
    d->pages = d->total_pages * 2 + 1024; /* fragmentation is not a simulated problem: addresses abound */
    size_t bytes = d->pages * SIM_PAGE;
    d->memfd = memfd_create("simcuda", MFD_CLOEXEC);
    if (d->memfd < 0 || ftruncate(d->memfd, (off_t)bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *area = mmap(NULL, bytes + SIM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    d->base = ((uintptr_t)area + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    if (mmap((void *)d->base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, d->memfd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    d->page = calloc(d->pages, sizeof(*d->page));
    return CUDA_SUCCESS;
}

static uintptr_t page_address(const struct sim_device *d, size_t page) {
    return d->base + page * SIM_PAGE;
}

static bool take_pages(struct sim_device *d, size_t count, size_t *first) {
    if (count > d->total_pages - d->used_pages)
        return false;
    size_t run = 0;
    while (d->first_free < d->pages && d->page[d->first_free].used)
        d->first_free++;
    for (size_t i = d->first_free; i < d->pages; i++) {
        run = d->page[i].used ? 0 : run + 1;
        if (run < count)
            continue;
        *first = i + 1 - count;
        if (mprotect((void *)page_address(d, *first), count * SIM_PAGE, PROT_READ | PROT_WRITE) != 0)
            return false;
        for (size_t k = *first; k <= i; k++)
            d->page[k].used = true;
        d->used_pages += count;
        return true;
    }
    return false;
}

static void give_pages(struct sim_device *d, size_t first, size_t count) {
    fallocate(d->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(first * SIM_PAGE), (off_t)(count * SIM_PAGE));
    mprotect((void *)page_address(d, first), count * SIM_PAGE, PROT_NONE);
    for (size_t i = first; i < first + count; i++) {
        free(d->page[i].units);
        free(d->page[i].map);
        d->page[i] = (struct sim_page){0};
    }
    d->used_pages -= count;
    if (first < d->first_free)
        d->first_free = first;
}

static bool taken(const struct sim_page *page, size_t unit) {
    return page->map[unit / 64] >> (unit % 64) & 1;
}

static bool find_units(const struct sim_page *page, size_t count, size_t *first) {
    size_t run = 0;
    for (size_t i = 0; i < UNITS; i++) {
        if (run == 0 && i % 64 == 0 && page->map[i / 64] == ~UINT64_C(0)) {
            i += 63;
            continue;
        }
        run = taken(page, i) ? 0 : run + 1;
        if (run == count) {
            *first = i + 1 - count;
            return true;
        }
    }
    return false;
}

static void set_units(struct sim_page *page, size_t first, size_t count, struct sim_alloc *alloc) {
    for (size_t i = first; i < first + count; i++) {
        page->units[i] = alloc;
        if (alloc)
            page->map[i / 64] |= UINT64_C(1) << (i % 64);
        else
            page->map[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
    page->free_units = (unsigned)(alloc ? page->free_units - count : page->free_units + count);
}

static bool take_units(struct sim_device *d, const void *owner, size_t count, size_t *page, size_t *unit) {
    size_t seen = 0;
    for (size_t i = 0; i < d->pages && seen < d->used_pages; i++) {
        struct sim_page *p = &d->page[i];
        seen += p->used;
        if (p->owner == owner && p->units && p->free_units >= count && find_units(p, count, unit)) {
            *page = i;
            return true;
        }
    }
    if (!take_pages(d, 1, page))
        return false;
    struct sim_page *p = &d->page[*page];
    p->owner = owner;
    p->units = calloc(UNITS, sizeof(struct sim_alloc *));
    p->map = calloc(UNITS / 64, sizeof(*p->map));
    p->free_units = UNITS;
    *unit = 0;
    return true;
}

struct sim_alloc *sim_pages_take(struct sim_device *d, const void *owner, size_t size, size_t align_pages) {
    struct sim_alloc *alloc = calloc(1, sizeof(*alloc));
    size_t first, unit;
    alloc->size = size;
    alloc->device = d->ordinal;
    alloc->id = ++sim.next_id;
    if (size <= SIM_SMALL && !align_pages) {
        size_t count = (size + SIM_UNIT - 1) / SIM_UNIT;
        if (!take_units(d, owner, count, &first, &unit))
            goto none;
        alloc->base = page_address(d, first) + unit * SIM_UNIT;
        alloc->span = count * SIM_UNIT;
        set_units(&d->page[first], unit, count, alloc);
        return alloc;
    }
    size_t pages = (size - 1) / SIM_PAGE + 1;
    if (!take_pages(d, pages, &first))
        goto none;
    for (size_t i = first; i < first + pages; i++)
        d->page[i].whole = alloc;
    alloc->base = page_address(d, first);
    alloc->span = pages * SIM_PAGE;
    return alloc;
none:
    free(alloc);
    return NULL;
}

void sim_pages_give(struct sim_alloc *alloc) {
    struct sim_device *d = &sim.device[alloc->device];
    size_t page = (alloc->base - d->base) / SIM_PAGE;
    if (d->page[page].units) {
        struct sim_page *p = &d->page[page];
        memset((void *)alloc->base, 0xdd, alloc->span);
        set_units(p, alloc->base % SIM_PAGE / SIM_UNIT, alloc->span / SIM_UNIT, NULL);
        if (p->free_units == UNITS)
            give_pages(d, page, 1);
    } else if (alloc->exported) { /* nobody tells when the other closes it: the pages are not used again */
        mprotect((void *)alloc->base, alloc->span, PROT_NONE);
        for (size_t i = page; i < page + alloc->span / SIM_PAGE; i++)
            d->page[i].whole = NULL;
    } else {
        give_pages(d, page, alloc->span / SIM_PAGE);
    }
    free(alloc);
}

static struct sim_page *page_of(uintptr_t address, struct sim_device **device) {
    for (int i = 0; i < sim.devices; i++) {
        struct sim_device *d = &sim.device[i];
        if (address >= d->base && address < d->base + d->pages * SIM_PAGE) {
            *device = d;
            return &d->page[(address - d->base) / SIM_PAGE];
        }
    }
    return NULL;
}

struct sim_alloc *sim_pages_find(uintptr_t address) {
    struct sim_device *d;
    struct sim_page *p = page_of(address, &d);
    if (!p || !p->used)
        return NULL;
    return p->units ? p->units[address % SIM_PAGE / SIM_UNIT] : p->whole;
}

bool sim_pages_mapped(uintptr_t address, size_t size) {
    struct sim_device *d;
    for (uintptr_t a = address & ~(SIM_PAGE - 1); a < address + size; a += SIM_PAGE) {
        struct sim_page *p = page_of(a < address ? address : a, &d);
        if (!p) /* not a device address: host, managed, VMM or another process's */
            return sim_vmm_accessible(address, size);
        if (!p->used)
            return false;
    }
    return true;
}
