/*
 * ipc.c: memory shared between processes by cuIpcGetMemHandle. The driver's handle means a whole allocation of its own, here a backend's segment, so
 * our handle says also where in it the program's allocation begins. Owns the list of what this process has opened.
 *
 * A handle is 64 bytes, or eight words. In the driver's (580, measured on one GPU and on two) they are an address in the exporter, its process, the size
 * in bytes and in pages of 4 KiB, device, number, client, and for large memory one more. So the upper bits of the first four are zero, and say in ours:
 *     word 0: generation 16 bits, so that the next allocation at the same place has another handle
 *     word 1: offset     32 bits, in units of 512 bytes
 *     word 3: check      16 bits over all the rest, the highest always set
 * A driver that uses these bits has its memory's export refused. The bytes that name the exporter's client are inverted: whoever opens such a handle
 * without cuplug is told that it is none (CUDA_ERROR_INVALID_HANDLE; measured) instead of being given the segment's first bytes.
 */
#include "ipc.h"

#include "config/options.h"
#include "context.h"
#include "core.h"
#include "driver_api.h"
#include "init.h"
#include "log.h"
#include "pages.h"

#include <stdatomic.h>
#include <string.h>

enum { UNIT = 512, WORDS = 8, CLIENT = 6 /* the word whose lower half is the client */ };

/* Bits of a word that are ours, from the one at `shift` up. */
struct field {
    int word, shift;
};
static const struct field GENERATION = {0, 48}, OFFSET = {1, 32}, CHECK = {3, 48};

/* An address that the program was given, and the driver's for the same: closing takes the driver's. */
struct import {
    struct import *next;
    const struct cuplug_context *context;
    CUdeviceptr pointer, base, end; /* … up to the segment's end, as a handle has no room for the block's */
    size_t opened;
};

static struct cuplug_lock lock; /* held for a few instructions; a child after a fork cannot use CUDA */
static struct import *_Atomic imports; /* changed under the lock */
static struct cuplug_slab slab = {.object_size = sizeof(struct import)};

static uint64_t word_of(const CUipcMemHandle *handle, int word) {
    uint64_t value;

    memcpy(&value, handle->reserved + word * 8, sizeof value);
    return value;
}

static void set_word(CUipcMemHandle *handle, int word, uint64_t value) {
    memcpy(handle->reserved + word * 8, &value, sizeof value);
}

static uint64_t get(const CUipcMemHandle *handle, struct field field) {
    return word_of(handle, field.word) >> field.shift;
}

static void set(CUipcMemHandle *handle, struct field field, uint64_t value) {
    uint64_t others = word_of(handle, field.word) & ((UINT64_C(1) << field.shift) - 1);

    set_word(handle, field.word, others | value << field.shift);
}

static void invert_client(CUipcMemHandle *handle) {
    set_word(handle, CLIENT, word_of(handle, CLIENT) ^ UINT32_MAX);
}

/* FNV-1a over everything but the check itself. */
static uint64_t check_of(CUipcMemHandle handle) {
    uint32_t hash = 2166136261u;

    set(&handle, CHECK, 0);
    for (int i = 0; i < WORDS * 8; i++)
        hash = (hash ^ (unsigned char)handle.reserved[i]) * 16777619u;
    return ((hash >> 16 ^ hash) & 0xffff) | 0x8000;
}

/* Says where the allocation begins; false if the driver's handle has no room for it. */
static bool encode(CUipcMemHandle *handle, uint64_t offset, uint64_t generation) {
    if (get(handle, GENERATION) || get(handle, OFFSET) || get(handle, CHECK))
        return false;
    invert_client(handle);
    set(handle, GENERATION, generation & 0xffff);
    set(handle, OFFSET, offset / UNIT);
    set(handle, CHECK, check_of(*handle));
    return true;
}

/* If the handle is one of ours: makes it the driver's, and *offset. */
static bool decode(CUipcMemHandle *handle, uint64_t *offset) {
    if (get(handle, CHECK) != check_of(*handle))
        return false;
    *offset = get(handle, OFFSET) * UNIT;
    invert_client(handle);
    set(handle, GENERATION, 0);
    set(handle, OFFSET, 0);
    set(handle, CHECK, 0);
    return true;
}

static CUresult refuse(const char *why) {
    static _Atomic bool said;

    if (!atomic_exchange(&said, true))
        cuplug_log(CUPLUG_LOG_WARN, "cuIpcGetMemHandle: refused: %s; CUPLUG_BACKEND=direct shares the driver's own memory", why);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuplug_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    bool on = cuplug_on();
    struct cuplug_record record;
    CUdeviceptr base, segment;
    CUipcMemHandle handle = {0};
    CUresult result;
    size_t size;

    switch (on && pHandle ? cuplug_core_find(dptr, &base, &record) : CUPLUG_THE_DRIVERS) {
    case CUPLUG_THE_DRIVERS:
        return cuplug_real.cuIpcGetMemHandle(pHandle, dptr);
    case CUPLUG_NOBODYS:
        return CUDA_ERROR_INVALID_VALUE;
    case CUPLUG_A_BACKENDS:
        break;
    }
    if (record.kind == CUPLUG_ASYNC) /* natively a pool's, which has handles of its own kind */
        return CUDA_ERROR_INVALID_VALUE;
    if (cuplug_options.ipc)
        return refuse("CUPLUG_IPC=refuse");
    result = cuplug_real.cuIpcGetMemHandle(&handle, base);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return refuse("the driver shares no memory of this backend's kind (managed memory, a pool's, cuMemCreate's)");
    if (result == CUDA_SUCCESS)
        result = cuplug_real.cuMemGetAddressRange_v2(&segment, &size, base);
    if (result != CUDA_SUCCESS)
        return result;
    if (record.backend != CUPLUG_BACKEND_PLUGIN || segment != base || size != record.size) { /* else it is the driver's own allocation */
        if ((base - segment) % UNIT || (base - segment) / UNIT > UINT32_MAX)
            return refuse("the backend's block does not start at a multiple of 512 bytes");
        if (!cuplug_backend_share((int)record.backend, &record))
            return CUDA_ERROR_INVALID_VALUE; /* its context ended just now */
        if (!encode(&handle, base - segment, record.sequence))
            return refuse("this driver's handles have no room for a block's place");
    }
    *pHandle = handle;
    return CUDA_SUCCESS;
}

/* What is open at that address: in this context, else in another. The lock is held. */
static struct import *find(CUdeviceptr pointer, const struct cuplug_context *context, bool anywhere) {
    struct import *other = NULL;

    for (struct import *import = imports; import; import = import->next) {
        if (import->pointer == pointer && import->context == context)
            return import;
        if (import->pointer == pointer && !other)
            other = import;
    }
    return anywhere ? other : NULL;
}

static bool remember(const struct cuplug_context *context, CUdeviceptr pointer, CUdeviceptr base, CUdeviceptr end) {
    struct import *import;

    cuplug_lock(&lock);
    import = find(pointer, context, false);
    if (!import && (import = cuplug_slab_take(&slab))) {
        *import = (struct import){.next = imports, .context = context, .pointer = pointer};
        imports = import;
    }
    if (import) {
        import->base = base; /* again where it was there: a close under way in another thread may have been its last */
        import->end = end;
        import->opened++;
    }
    cuplug_unlock(&lock);
    return import;
}

/* The lock is held. */
static void drop(struct import *import) {
    struct import *before = imports;

    if (before == import) {
        imports = import->next;
    } else {
        while (before->next != import)
            before = before->next;
        before->next = import->next;
    }
    cuplug_slab_give(&slab, import);
}

bool cuplug_ipc_find(CUdeviceptr address, CUdeviceptr *base, size_t *size) {
    struct import *nearest = NULL;

    if (!atomic_load_explicit(&imports, memory_order_relaxed))
        return false;
    cuplug_lock(&lock);
    for (struct import *import = imports; import; import = import->next)
        if (import->pointer <= address && address < import->end && (!nearest || import->pointer > nearest->pointer))
            nearest = import;
    if (nearest) {
        *base = nearest->pointer;
        *size = nearest->end - nearest->pointer;
    }
    cuplug_unlock(&lock);
    return nearest;
}

/* Where the driver knows the address under another one: that. */
static CUdeviceptr base_of(CUdeviceptr pointer, const struct cuplug_context *context) {
    struct import *import;

    cuplug_lock(&lock);
    import = find(pointer, context, true);
    pointer = import ? import->base : pointer;
    cuplug_unlock(&lock);
    return pointer;
}

static void forget(CUdeviceptr pointer, const struct cuplug_context *context) {
    struct import *import;

    cuplug_lock(&lock);
    import = find(pointer, context, true);
    if (import && --import->opened == 0)
        drop(import);
    cuplug_unlock(&lock);
}

static CUresult opened(CUresult result, CUdeviceptr *pdptr, uint64_t offset) {
    CUdeviceptr base;
    size_t size;

    if (result != CUDA_SUCCESS)
        return result;
    if (cuplug_real.cuMemGetAddressRange_v2(&base, &size, *pdptr) != CUDA_SUCCESS || base != *pdptr || offset >= size)
        size = offset; /* nothing to say about it */
    if (!remember(cuplug_context_current(), *pdptr + offset, *pdptr, *pdptr + size)) {
        cuplug_real.cuIpcCloseMemHandle(*pdptr);
        *pdptr = 0;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pdptr += offset;
    return result;
}

CUresult cuplug_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    uint64_t offset;

    if (!cuplug_on() || !decode(&handle, &offset))
        return cuplug_real.cuIpcOpenMemHandle(pdptr, handle, Flags);
    return opened(cuplug_real.cuIpcOpenMemHandle(pdptr, handle, Flags), pdptr, offset);
}

CUresult cuplug_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    uint64_t offset;

    if (!cuplug_on() || !decode(&handle, &offset))
        return cuplug_real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
    return opened(cuplug_real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags), pdptr, offset);
}

CUresult cuplug_cuIpcCloseMemHandle(CUdeviceptr dptr) {
    bool on = cuplug_on();
    struct cuplug_context *context = on ? cuplug_context_current() : NULL;
    CUresult result = cuplug_real.cuIpcCloseMemHandle(on ? base_of(dptr, context) : dptr);

    if (on && result == CUDA_SUCCESS)
        forget(dptr, context);
    return result;
}

void cuplug_ipc_context_lost(const struct cuplug_context *context) {
    struct import *import, *next;

    cuplug_lock(&lock);
    for (import = imports; import; import = next) {
        next = import->next;
        if (import->context == context)
            drop(import);
    }
    cuplug_unlock(&lock);
}
