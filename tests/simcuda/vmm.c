/*
 * vmm.c — virtual memory management: physical handles, reserved addresses, mappings.
 *
 * A physical handle is a run of pages in the device's memory file (its home addresses are never given out); a mapping
 * shows the same pages elsewhere, inaccessible until cuMemSetAccess. Mapping and unmapping wait for nothing. A handle
 * is exported as a fresh descriptor of the memory file, positioned at the handle's pages.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct physical {
    struct sim_alloc *alloc; /* our pages; NULL: another process's */
    int fd, device;
    off_t offset;
    size_t size; /* 0: unknown, imported */
    size_t handles, mappings;
    CUmemAllocationProp prop;
    struct physical *next;
};

struct reservation {
    uintptr_t base;
    size_t size;
    struct reservation *next;
};

static struct physical *physicals;
static struct reservation *reservations;

static struct physical *check(CUmemGenericAllocationHandle handle) {
    struct physical *p = physicals;
    while (p && (CUmemGenericAllocationHandle)(uintptr_t)p != handle)
        p = p->next;
    return p && p->handles > 0 ? p : NULL;
}

static void drop(struct physical *p) {
    if (p->handles > 0 || p->mappings > 0)
        return;
    struct physical **link = &physicals;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    if (p->alloc)
        sim_pages_give(p->alloc);
    else
        close(p->fd);
    free(p);
}

static struct reservation *reserved(uintptr_t base, size_t size) {
    for (struct reservation *r = reservations; r; r = r->next)
        if (base >= r->base && base < r->base + r->size)
            return size <= r->base + r->size - base ? r : NULL;
    return NULL;
}

bool sim_vmm_accessible(uintptr_t address, size_t size) {
    if (!reserved(address, 1))
        return true;
    while (size > 0) {
        struct sim_alloc *map = sim_range_find(address);
        if (!map || map->kind != SIM_VMM || !map->access)
            return false;
        size_t here = map->base + map->size - address;
        if (here >= size)
            return true;
        address += here;
        size -= here;
    }
    return true;
}

CUresult sim_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option) {
    if (!out || !prop || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *out = SIM_PAGE;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                         unsigned long long flags) {
    if (!out || !prop || flags || size == 0 || size % SIM_PAGE || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    int device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : 0;
    if (device < 0 || device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_alloc *alloc = sim_pages_take(&sim.device[device], physicals, size, 1);
    if (!alloc && sim_pool_reclaim(device) > 0)
        alloc = sim_pages_take(&sim.device[device], physicals, size, 1);
    if (!alloc)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    alloc->kind = SIM_VMM;
    alloc->freeing = true; /* the home addresses are nobody's */
    struct physical *p = calloc(1, sizeof(*p));
    *p = (struct physical){.alloc = alloc,
                           .fd = sim.device[device].memfd,
                           .device = device,
                           .size = size,
                           .handles = 1,
                           .offset = (off_t)(alloc->base - sim.device[device].base),
                           .prop = *prop,
                           .next = physicals};
    physicals = p;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle) {
    sim_lock();
    struct physical *p = check(handle);
    if (!p)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    p->handles--;
    drop(p);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
    (void)wish;
    if (!out || flags || size == 0 || size % SIM_PAGE || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < SIM_PAGE)
        alignment = SIM_PAGE;
    char *area = size + alignment < size
                     ? MAP_FAILED
                     : mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uintptr_t base = ((uintptr_t)area + alignment - 1) & ~(alignment - 1);
    if (base > (uintptr_t)area)
        munmap(area, base - (uintptr_t)area);
    munmap((void *)(base + size), alignment - (base - (uintptr_t)area));
    struct reservation *r = malloc(sizeof(*r));
    sim_lock();
    *r = (struct reservation){base, size, reservations};
    reservations = r;
    *out = base;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemAddressFree(CUdeviceptr base, size_t size) {
    sim_lock();
    struct reservation **link = &reservations;
    while (*link && (*link)->base != base)
        link = &(*link)->next;
    struct reservation *r = *link;
    if (!r || r->size != size || sim_range_overlap(base, size))
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    *link = r->next;
    munmap((void *)(uintptr_t)base, size);
    free(r);
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
    sim_lock();
    struct physical *p = check(handle);
    bool ok = p && !flags && size && size % SIM_PAGE == 0 && base % SIM_PAGE == 0 && offset % SIM_PAGE == 0 &&
              (p->size == 0 || (offset < p->size && size <= p->size - offset)) && reserved(base, size) &&
              !sim_range_overlap(base, size);
    if (p && p->size && offset < p->size && size > p->size - offset)
        return sim_unlock_return(CUDA_ERROR_NOT_SUPPORTED);
    if (!ok)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    if (mmap((void *)(uintptr_t)base, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, p->fd,
             p->offset + (off_t)offset) == MAP_FAILED)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_alloc *map = sim_range_add(base, size, SIM_VMM);
    map->device = p->device;
    map->physical = p;
    map->rdma = p->prop.allocFlags.gpuDirectRDMACapable;
    p->mappings++;
    return sim_unlock_return(CUDA_SUCCESS);
}

/* Visits the mappings that fill [base, base + size) exactly. False: they do not. */
static bool each_mapping(uintptr_t base, size_t size, bool (*visit)(struct sim_alloc *, const void *), const void *arg) {
    uintptr_t end = base + size;
    for (uintptr_t a = base; a < end;) {
        struct sim_alloc *map = sim_range_find(a);
        if (!map || map->kind != SIM_VMM || map->base != a || map->base + map->size > end)
            return false;
        a += map->size; /* before the visit: it may remove the mapping */
        if (visit && !visit(map, arg))
            return false;
    }
    return size > 0;
}

static bool unmap_one(struct sim_alloc *map, const void *unused) {
    (void)unused;
    struct physical *p = map->physical;
    mmap((void *)map->base, map->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    sim_range_remove(map);
    p->mappings--;
    drop(p);
    return true;
}

CUresult sim_cuMemUnmap(CUdeviceptr base, size_t size) {
    sim_lock();
    bool ok = (reserved(base, size) && !sim_range_overlap(base, size)) || /* nothing there: nothing to do */
              (each_mapping(base, size, NULL, NULL) && each_mapping(base, size, unmap_one, NULL));
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static bool protect_one(struct sim_alloc *map, const void *arg) {
    const CUmemAccessDesc *desc = arg;
    int prot = PROT_NONE;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
        prot = PROT_READ;
    else if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        prot = PROT_READ | PROT_WRITE;
    if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        unsigned bit = 1u << desc->location.id;
        map->access = prot ? map->access | bit : map->access & ~bit;
    } else {
        map->access |= prot ? 1u << 31 : 0;
    }
    if (!prot && map->access)
        return true; /* somebody else may still touch it: one address space plays all devices */
    return mprotect((void *)map->base, map->size, prot) == 0;
}

CUresult sim_cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *desc, size_t count) {
    if (!desc || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool ok = each_mapping(base, size, NULL, NULL);
    for (size_t i = 0; ok && i < count; i++)
        ok = (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
              (desc[i].location.id >= 0 && desc[i].location.id < sim.devices)) &&
             each_mapping(base, size, protect_one, &desc[i]);
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *map = sim_range_find(address);
    bool ok = map && map->kind == SIM_VMM && location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id < sim.devices;
    if (ok)
        *flags = map->access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return sim_unlock_return(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_alloc *map = sim_range_find((uintptr_t)address);
    if (!map || map->kind != SIM_VMM)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    struct physical *p = map->physical;
    p->handles++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    sim_lock();
    struct physical *p = check(handle);
    if (!p || !prop)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    *prop = p->prop;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    sim_lock();
    struct physical *p = check(handle);
    if (!out || !p || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC); /* a position of its own, unlike dup */
    if (fd < 0 || lseek(fd, p->offset, SEEK_SET) < 0)
        return sim_unlock_return(CUDA_ERROR_OUT_OF_MEMORY);
    *(int *)out = fd;
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type) {
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
    off_t offset = fd < 0 ? -1 : lseek(fd, 0, SEEK_CUR);
    if (offset < 0 || offset % (off_t)SIM_PAGE)
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *p = calloc(1, sizeof(*p));
    *p = (struct physical){.fd = fd, .offset = offset, .handles = 1};
    p->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    sim_lock();
    p->next = physicals;
    physicals = p;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return sim_unlock_return(CUDA_SUCCESS);
}
