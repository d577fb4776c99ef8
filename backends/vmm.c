/*
 * vmm.c: see vmm.h. Owns, for each context, the ranges of addresses and the list of what is mapped in them (lock; taken after a cache's). A
 * piece is one physical handle, as large as the segment that it was made for: handles of 2 MiB would cost the driver far more (measured). Moving costs
 * a mapping and no memory: a piece that is idle, and that no work can touch, goes behind the last one, where it joins what is new.
 */
#include "vmm.h"

#include "config/options.h"
#include "registry.h"
#include "shim/log.h"
#include "shim/pages.h"
#include "shim/stats.h"

struct piece {
    struct piece *next; /* by address */
    CUdeviceptr base;
    size_t size;
    CUmemGenericAllocationHandle handle;
};

/* Addresses. New pieces go to `top`. */
struct range {
    struct range *next; /* the one before it */
    CUdeviceptr base, top;
    size_t size, mapped;
};

struct vmm {
    struct cuplug_lock lock;
    CUdevice device;
    bool maps; /* if not, its pieces are allocations of cuMemAlloc, without a handle */
    struct piece *pieces;
    struct range *ranges; /* the newest is in use, the others until nothing is mapped there */
    struct vmm *next;     /* left over, or spare */
};

static struct cuplug_lock lists_lock; /* of the lists and the slabs; taken last */
static struct vmm *leftovers, *spares;
static _Atomic bool any_leftovers;
static struct piece *unreleased; /* the driver did not take them */
static struct cuplug_slab piece_slab = {.object_size = sizeof(struct piece)}, range_slab = {.object_size = sizeof(struct range)};
static _Atomic uint64_t told; /* devices, a bit each, that cannot do it and were said so */

static void *take(struct cuplug_slab *slab) {
    void *object;

    cuplug_lock(&lists_lock);
    object = cuplug_slab_take(slab);
    cuplug_unlock(&lists_lock);
    return object;
}

static void give(struct cuplug_slab *slab, void *object) {
    cuplug_lock(&lists_lock);
    cuplug_slab_give(slab, object);
    cuplug_unlock(&lists_lock);
}

static struct vmm *there(struct cuplug_context *context) {
    return atomic_load_explicit(&context->vmm, memory_order_acquire);
}

static bool usable(CUdevice device) {
    int supported = 0;

    if (cuplug_real_has(cuMemAddressReserve))
        cuplug_real.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (!supported && cuplug_cache_first(&told, device))
        cuplug_log(CUPLUG_LOG_ERROR, "%s: device %d has no virtual memory management; using source=device there", cuplug_options.backend, device);
    return supported;
}

static struct vmm *of(struct cuplug_context *context) {
    struct vmm *vmm = there(context);
    void *none = NULL;

    if (vmm)
        return vmm;
    cuplug_lock(&lists_lock);
    vmm = spares;
    if (vmm)
        spares = vmm->next;
    cuplug_unlock(&lists_lock);
    if (!vmm && !(vmm = cuplug_pages_map(sizeof *vmm)))
        return NULL;
    vmm->device = context->device;
    vmm->maps = usable(context->device);
    if (atomic_compare_exchange_strong(&context->vmm, &none, vmm))
        return vmm;
    cuplug_lock(&lists_lock);
    vmm->next = spares;
    spares = vmm;
    cuplug_unlock(&lists_lock);
    return none;
}

/* --- addresses --- */

/* So much that a range is rarely full: the device's memory several times. */
static CUresult new_range(struct vmm *vmm, size_t least) {
    struct range *range = take(&range_slab);
    size_t total = 0, size;
    CUresult result;

    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cuplug_real.cuDeviceTotalMem_v2(&total, vmm->device);
    size = cuplug_cache_round_up(4 * total > least ? 4 * total : least, CUPLUG_CACHE_PAGE);
    result = cuplug_real.cuMemAddressReserve(&range->base, size, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        give(&range_slab, range);
        return result;
    }
    range->size = size;
    range->top = range->base;
    cuplug_lock(&vmm->lock);
    range->next = vmm->ranges;
    vmm->ranges = range;
    cuplug_unlock(&vmm->lock);
    return CUDA_SUCCESS;
}

/* Addresses for so much at the end of the newest range; 0 if it has no room. */
static CUdeviceptr claim(struct vmm *vmm, size_t size) {
    CUdeviceptr base = 0;
    struct range *range;

    cuplug_lock(&vmm->lock);
    range = vmm->ranges;
    if (range && !range->mapped)
        range->top = range->base;
    if (range && range->size - (size_t)(range->top - range->base) >= size) {
        base = range->top;
        range->top += size;
        range->mapped += size;
    }
    cuplug_unlock(&vmm->lock);
    return base;
}

static struct range **range_of(struct vmm *vmm, CUdeviceptr base) {
    struct range **link = &vmm->ranges;

    while (*link && (base < (*link)->base || base - (*link)->base >= (*link)->size))
        link = &(*link)->next;
    return link;
}

/* The addresses are free again; the last ones of a range for the next piece. An old range goes once it is empty. */
static void unclaim(struct vmm *vmm, CUdeviceptr base, size_t size) {
    struct range **link, *range, *empty = NULL;

    cuplug_lock(&vmm->lock);
    link = range_of(vmm, base);
    range = *link;
    range->mapped -= size;
    if (range->top == base + size)
        range->top = base;
    if (!range->mapped && range != vmm->ranges) {
        *link = range->next;
        empty = range;
    }
    cuplug_unlock(&vmm->lock);
    if (!empty)
        return;
    cuplug_real.cuMemAddressFree(empty->base, empty->size);
    give(&range_slab, empty);
}

/* --- pieces --- */

static void list_piece(struct vmm *vmm, struct piece *piece) {
    struct piece **link = &vmm->pieces;

    cuplug_lock(&vmm->lock);
    while (*link && (*link)->base < piece->base)
        link = &(*link)->next;
    piece->next = *link;
    *link = piece;
    cuplug_unlock(&vmm->lock);
}

/* The piece that begins there, out of the list; NULL if none does. */
static struct piece *unlist_piece(struct vmm *vmm, CUdeviceptr base) {
    struct piece **link = &vmm->pieces, *piece;

    cuplug_lock(&vmm->lock);
    while (*link && (*link)->base != base)
        link = &(*link)->next;
    piece = *link;
    if (piece)
        *link = piece->next;
    cuplug_unlock(&vmm->lock);
    return piece;
}

static CUresult give_access(CUdeviceptr base, size_t size, CUdevice to) {
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = to}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return cuplug_real.cuMemSetAccess(base, size, &access, 1);
}

/* Its own device's must work; another's that does not will be missed by who uses it, as without us. */
static CUresult open_piece(struct cuplug_context *context, const struct piece *piece) {
    CUresult result = give_access(piece->base, piece->size, context->device);
    uint64_t peers = atomic_load(&context->peers);

    for (CUdevice by = 0; peers && result == CUDA_SUCCESS; by++, peers >>= 1)
        if (peers & 1)
            give_access(piece->base, piece->size, by);
    return result;
}

/* Maps it at these addresses. It is listed first: a device that is given access meanwhile is either seen here or sees it. */
static CUresult map(struct vmm *vmm, struct cuplug_context *context, struct piece *piece, CUdeviceptr base) {
    CUresult result = cuplug_real.cuMemMap(base, piece->size, 0, piece->handle, 0);

    if (result != CUDA_SUCCESS)
        return result;
    piece->base = base;
    list_piece(vmm, piece);
    result = open_piece(context, piece);
    if (result != CUDA_SUCCESS) {
        unlist_piece(vmm, base);
        cuplug_real.cuMemUnmap(base, piece->size);
    }
    return result;
}

/* Lets go of what the driver once did not take. */
static void release_again(void) {
    struct piece *piece, *stuck;

    cuplug_lock(&lists_lock);
    piece = unreleased;
    unreleased = NULL;
    cuplug_unlock(&lists_lock);
    for (stuck = piece; stuck; stuck = piece) {
        piece = stuck->next;
        if (cuplug_real.cuMemRelease(stuck->handle) == CUDA_SUCCESS) {
            give(&piece_slab, stuck);
            continue;
        }
        cuplug_lock(&lists_lock);
        stuck->next = unreleased;
        unreleased = stuck;
        cuplug_unlock(&lists_lock);
    }
}

/* Lets go of the memory of a piece that is mapped nowhere; if the driver does not, it is asked again with the next, or for the next segment. */
static void discard(struct piece *piece) {
    cuplug_lock(&lists_lock);
    piece->next = unreleased;
    unreleased = piece;
    cuplug_unlock(&lists_lock);
    release_again();
}

static CUresult create(struct vmm *vmm, struct cuplug_context *context, size_t size, CUdeviceptr base) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = vmm->device}};
    struct piece *piece = take(&piece_slab);
    int rdma = 0;
    CUresult result;

    if (!piece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cuplug_real.cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, vmm->device);
    prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
    piece->size = size;
    result = cuplug_real.cuMemCreate(&piece->handle, size, &prop, 0);
    if (result != CUDA_SUCCESS) {
        give(&piece_slab, piece);
        return result;
    }
    result = map(vmm, context, piece, base);
    if (result != CUDA_SUCCESS)
        discard(piece);
    return result;
}

/* Unmaps what begins there; the piece, which has its memory still. NULL if the driver does not. */
static struct piece *unmap(struct vmm *vmm, CUdeviceptr base) {
    struct piece *piece = unlist_piece(vmm, base);

    if (!piece)
        return NULL;
    if ((piece->handle ? cuplug_real.cuMemUnmap(base, piece->size) : cuplug_real.cuMemFree_v2(base)) == CUDA_SUCCESS)
        return piece;
    list_piece(vmm, piece);
    return NULL;
}

/* What begins there goes back to the driver; its size, 0 if it does not. */
static size_t give_back(struct vmm *vmm, CUdeviceptr base) {
    struct piece *piece = unmap(vmm, base);
    size_t size;

    if (!piece)
        return 0;
    size = piece->size;
    if (piece->handle) {
        discard(piece);
        unclaim(vmm, base, size);
    } else {
        give(&piece_slab, piece);
    }
    return size;
}

CUresult cuplug_vmm_release(struct cuplug_context *context, CUdeviceptr base, size_t size) {
    CUdeviceptr end = base + size;
    struct vmm *vmm = there(context);
    size_t bytes;

    while (base < end && vmm && (bytes = give_back(vmm, base)))
        base += bytes;
    return base == end ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

size_t cuplug_vmm_whole(struct cuplug_context *context, CUdeviceptr address, size_t size, size_t most, CUdeviceptr *base) {
    CUdeviceptr end = address + size;
    struct vmm *vmm = there(context);
    size_t bytes = 0;

    if (!vmm)
        return 0;
    cuplug_lock(&vmm->lock);
    for (struct piece *piece = vmm->pieces; piece && !bytes; piece = piece->next)
        if (piece->base >= address && piece->base + piece->size <= end && piece->size <= most) {
            *base = piece->base;
            bytes = piece->size;
        }
    cuplug_unlock(&vmm->lock);
    return bytes;
}

/* --- segments --- */

/* What is taken of the driver is to be allowed by the policy, and told to it if it was not taken after all. */
static bool charge(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size) {
    return !policy->charge || policy->charge(context, size);
}

static CUresult charged(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size, CUresult result) {
    if (result != CUDA_SUCCESS && policy->gone)
        policy->gone(context, size);
    return result;
}

/* Where the device cannot map: a segment as source=device has it, which is a piece all the same. Two of these are never one, even side by side. */
static CUresult plain_segment(const struct cuplug_policy *policy, struct vmm *vmm, struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    struct piece *piece = charge(policy, context, size) ? take(&piece_slab) : NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!piece)
        return result;
    cuplug_cache_apart(cuplug_cache_there(policy, context));
    result = charged(policy, context, size, cuplug_real.cuMemAlloc_v2(base, size));
    if (result == CUDA_SUCCESS) {
        piece->base = *base;
        piece->size = size;
        list_piece(vmm, piece);
    } else {
        give(&piece_slab, piece);
    }
    return result;
}

/* New memory, mapped from `base` on. */
static CUresult fresh(const struct cuplug_policy *policy, struct vmm *vmm, struct cuplug_context *context, size_t size, CUdeviceptr base) {
    return charge(policy, context, size) ? charged(policy, context, size, create(vmm, context, size, base)) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Fills the addresses from `to` on with idle memory of the context's; bytes. Not where somebody else may know where memory lies: a network card's driver, or
 * another context. */
static size_t move(const struct cuplug_policy *policy, struct vmm *vmm, struct cuplug_context *context, CUdeviceptr to, size_t size) {
    struct cuplug_cache *cache = cuplug_cache_there(policy, context);
    size_t moved = 0, bytes;
    struct piece *piece;
    CUdeviceptr from;

    while (cache && moved < size && !cuplug_context_shared() && (bytes = cuplug_cache_cut_out(cache, context, size - moved, 0, &from))) {
        piece = unmap(vmm, from);
        if (!piece) {
            cuplug_cache_put_back(cache, context, from, bytes);
            break;
        }
        unclaim(vmm, from, bytes);
        if (map(vmm, context, piece, to + moved) != CUDA_SUCCESS) { /* it has no place any more */
            discard(piece);
            cuplug_cache_segment_gone(policy, context, bytes);
            break;
        }
        moved += bytes;
    }
    return moved;
}

static void clear(CUdevice device);

CUresult cuplug_vmm_segment(const struct cuplug_policy *policy, struct cuplug_context *context, size_t size, CUdeviceptr *base) {
    struct vmm *vmm = of(context);
    CUresult result = cuplug_context_check(); /* physical memory does not ask for a context; cudaMalloc does */
    size_t moved;

    if (result != CUDA_SUCCESS)
        return result;
    clear(context->device);
    release_again();
    if (!vmm)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!vmm->maps)
        return plain_segment(policy, vmm, context, size, base);
    while (!(*base = claim(vmm, size)) && result == CUDA_SUCCESS)
        result = new_range(vmm, size);
    if (result != CUDA_SUCCESS)
        return result;
    moved = move(policy, vmm, context, *base, size);
    if (moved < size)
        result = fresh(policy, vmm, context, size - moved, *base + moved);
    if (result == CUDA_SUCCESS) {
        CUPLUG_LEVEL(policy->backend, context->device, reserved_bytes, -(int64_t)moved); /* the new one is counted as a whole */
        return result;
    }
    unclaim(vmm, *base + moved, size - moved);
    if (moved)
        cuplug_cache_put_back(cuplug_cache_there(policy, context), context, *base, moved);
    return result;
}

/* The first piece that begins behind this address; its size, 0 if there is none. */
static size_t piece_behind(struct vmm *vmm, CUdeviceptr address, CUdeviceptr *base) {
    const struct piece *piece;
    size_t size = 0;

    cuplug_lock(&vmm->lock);
    for (piece = vmm->pieces; piece && piece->base <= address;)
        piece = piece->next;
    if (piece) {
        *base = piece->base;
        size = piece->size;
    }
    cuplug_unlock(&vmm->lock);
    return size;
}

void cuplug_vmm_reached(struct cuplug_context *context, CUdevice by) {
    struct vmm *vmm = there(context);
    CUdeviceptr base = 0;
    size_t size;

    while (vmm && (size = piece_behind(vmm, base, &base)))
        give_access(base, size, by);
}

/* --- contexts that end --- */

/* False if the driver cannot now: its current context has ended, say. */
static bool empty(struct vmm *vmm) {
    struct range *range;
    CUdeviceptr base;

    while (piece_behind(vmm, 0, &base))
        if (!give_back(vmm, base))
            return false;
    while ((range = vmm->ranges)) {
        if (cuplug_real.cuMemAddressFree(range->base, range->size) != CUDA_SUCCESS)
            return false;
        vmm->ranges = range->next;
        give(&range_slab, range);
    }
    return true;
}

/* Takes one of the device out of the leftovers; NULL if there is none. */
static struct vmm *next_leftover(CUdevice device) {
    struct vmm **link = &leftovers, *vmm;

    cuplug_lock(&lists_lock);
    while (*link && (*link)->device != device)
        link = &(*link)->next;
    vmm = *link;
    if (vmm)
        *link = vmm->next;
    atomic_store(&any_leftovers, leftovers != NULL);
    cuplug_unlock(&lists_lock);
    return vmm;
}

static void put(struct vmm **list, struct vmm *vmm) {
    cuplug_lock(&lists_lock);
    vmm->next = *list;
    *list = vmm;
    atomic_store(&any_leftovers, leftovers != NULL);
    cuplug_unlock(&lists_lock);
}

static void clear(CUdevice device) {
    bool done = true;
    struct vmm *vmm;

    while (atomic_load_explicit(&any_leftovers, memory_order_relaxed) && done && (vmm = next_leftover(device))) {
        done = empty(vmm);
        put(done ? &spares : &leftovers, vmm);
    }
}

/* Mappings and handles are the process's, so they stay. (What was cuMemAlloc's does not.) */
void cuplug_vmm_lost(struct cuplug_context *context) {
    struct vmm *vmm = atomic_exchange(&context->vmm, NULL);
    struct piece **link, *piece;

    if (!vmm)
        return;
    cuplug_lock(&vmm->lock);
    for (link = &vmm->pieces; (piece = *link);) {
        if (piece->handle) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        give(&piece_slab, piece);
    }
    cuplug_unlock(&vmm->lock);
    put(&leftovers, vmm);
    clear(context->device);
}
