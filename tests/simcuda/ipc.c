/*
 * ipc.c — memory and events of other processes.
 *
 * A memory handle names the exporting process, its memory file and the allocation's place in it; an importer maps the
 * pages and gets the allocation's own address within them. They stay as they are when the exporter frees them. An interprocess event is two counters in a shared page.
 */
#include "ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMORY 0x5c000001u
#define EVENT 0x5c0e0001u
#define CLIENT 0xc1d00000u
#define LARGE ((size_t)1 << 30)

/* Both 64-byte handles. The fields are as wide as the real driver's; what it keeps in some is said behind. */
struct wire {
    uint64_t offset; /* an address */
    uint32_t pid, zero;
    uint64_t size, pages; /* of 4 KiB */
    uint16_t device, fd, pad, ff00;
    uint64_t id;
    uint32_t client, what; /* another client's is no handle at all */
    uint64_t large;        /* zero for small memory */
};
_Static_assert(sizeof(struct wire) == sizeof(CUipcMemHandle) && sizeof(struct wire) == sizeof(CUipcEventHandle), "64 bytes");

struct import {
    struct wire wire;
    struct sim_alloc *alloc;
    void *area;
    size_t bytes;
    struct sim_ctx *ctx; /* one of each device may have it open */
    int opened;
    struct import *next;
};
static struct import *imports;

static int open_theirs(const struct wire *wire) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%u", wire->pid, wire->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    struct sim_alloc *alloc = sim_find(address);
    if (r == CUDA_SUCCESS && (!alloc || alloc->kind != SIM_DEVICE))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct sim_device *device = &sim.device[alloc->device];
    struct wire wire = {.what = MEMORY,
                        .client = CLIENT,
                        .pid = (uint32_t)getpid(),
                        .fd = (uint16_t)device->memfd,
                        .device = (uint16_t)alloc->device,
                        .ff00 = 0xff00,
                        .offset = alloc->base - device->base,
                        .size = alloc->size,
                        .pages = alloc->size / 4096,
                        .id = alloc->id,
                        .large = alloc->size >= LARGE ? 0x5c0000010000000c : 0};
    memcpy(handle, &wire, sizeof(wire));
    alloc->exported = true;
    return sim_unlock_return(CUDA_SUCCESS);
}

static CUresult import_memory(const struct wire *wire, struct sim_ctx *ctx, struct import **out) {
    size_t inside = wire->offset % SIM_PAGE;
    size_t bytes = (inside + wire->size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    int fd = open_theirs(wire);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)(wire->offset - inside));
    close(fd);
    if (area == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    struct import *import = calloc(1, sizeof(*import));
    *import = (struct import){.wire = *wire, .area = area, .bytes = bytes, .ctx = ctx, .next = imports};
    import->alloc = sim_range_add((uintptr_t)area + inside, wire->size, SIM_IPC);
    import->alloc->device = wire->device;
    imports = import;
    *out = import;
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    struct wire wire;
    memcpy(&wire, &handle, sizeof(wire));
    if (!out || !(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || wire.what != MEMORY)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS && wire.pid == (uint32_t)getpid())
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && wire.client != CLIENT)
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS && wire.device >= sim.devices)
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    struct import *import = imports;
    while (import && (memcmp(&import->wire, &wire, sizeof(wire)) != 0 || import->ctx->device != ctx->device))
        import = import->next;
    if (!import)
        r = import_memory(&wire, ctx, &import);
    else if (import->ctx != ctx)
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS) {
        import->opened++;
        *out = import->alloc->base;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    return sim_cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr address) {
    sim_lock();
    struct import **link = &imports;
    while (*link && (*link)->alloc->base != address)
        link = &(*link)->next;
    struct import *import = *link;
    if (!import)
        return sim_unlock_return(CUDA_ERROR_INVALID_VALUE);
    if (--import->opened == 0) {
        struct sim_ctx *ctx = sim.device[import->wire.device].primary;
        if (ctx && ctx->live)
            sim_ctx_drain(ctx);
        for (link = &imports; *link != import;)
            link = &(*link)->next;
        *link = import->next;
        munmap(import->area, import->bytes);
        sim_range_remove(import->alloc);
        free(import);
    }
    return sim_unlock_return(CUDA_SUCCESS);
}

/* --- events ------------------------------------------------------------------------------------------------------------ */

struct sim_ipc_event {
    int fd, refs;
    uint64_t *counter; /* [0] records submitted, [1] records reached */
};

static struct sim_ipc_event *map_event(int fd) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return NULL;
    struct sim_ipc_event *shared = malloc(sizeof(*shared));
    *shared = (struct sim_ipc_event){.fd = fd, .refs = 1, .counter = page};
    return shared;
}

struct sim_ipc_event *sim_ipc_event_new(void) {
    int fd = memfd_create("simcuda-event", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return NULL;
    return map_event(fd);
}

struct sim_ipc_event *sim_ipc_event_ref(struct sim_ipc_event *shared) {
    shared->refs++;
    return shared;
}

void sim_ipc_event_unref(struct sim_ipc_event *shared) {
    if (!shared || --shared->refs > 0)
        return;
    munmap(shared->counter, 4096);
    close(shared->fd);
    free(shared);
}

uint64_t sim_ipc_event_submit(struct sim_ipc_event *shared) {
    return __atomic_add_fetch(&shared->counter[0], 1, __ATOMIC_ACQ_REL);
}

uint64_t sim_ipc_event_submitted(struct sim_ipc_event *shared) {
    return __atomic_load_n(&shared->counter[0], __ATOMIC_ACQUIRE);
}

bool sim_ipc_event_reached(struct sim_ipc_event *shared, uint64_t ticket) {
    return __atomic_load_n(&shared->counter[1], __ATOMIC_ACQUIRE) >= ticket;
}

void sim_ipc_event_signal(struct sim_ipc_event *shared, uint64_t ticket) {
    uint64_t now = __atomic_load_n(&shared->counter[1], __ATOMIC_RELAXED);
    while (now < ticket &&
           !__atomic_compare_exchange_n(&shared->counter[1], &now, ticket, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

void sim_ipc_event_await(struct sim_ipc_event *shared, uint64_t ticket) {
    const struct timespec pause = {.tv_nsec = 50000};
    while (!sim_ipc_event_reached(shared, ticket))
        nanosleep(&pause, NULL);
}

CUresult sim_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_event *event = sim_event_check(event_handle);
    if (!event || !event->shared)
        return sim_unlock_return(event ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    struct wire wire = {.what = EVENT, .client = CLIENT, .pid = (uint32_t)getpid(), .fd = (uint16_t)event->shared->fd};
    memcpy(handle, &wire, sizeof(wire));
    return sim_unlock_return(CUDA_SUCCESS);
}

CUresult sim_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    struct wire wire;
    memcpy(&wire, &handle, sizeof(wire));
    if (!out || wire.what != EVENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (wire.pid == (uint32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    struct sim_ctx *ctx;
    CUresult r = sim_current(&ctx);
    if (r != CUDA_SUCCESS)
        return sim_unlock_return(r);
    int fd = open_theirs(&wire);
    struct sim_ipc_event *shared = fd < 0 ? NULL : map_event(fd);
    if (!shared)
        return sim_unlock_return(CUDA_ERROR_MAP_FAILED);
    struct sim_event *event = sim_event_new();
    event->ctx = ctx;
    event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    event->shared = shared;
    *out = (CUevent)event;
    return sim_unlock_return(CUDA_SUCCESS);
}
