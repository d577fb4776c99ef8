/*
 * What is said of a pointer: the driver's attributes one by one and together, the runtime's, the address range; and of the memory
 * there is.
 */
#include "conform.h"

#define SIZE 5000

struct subject {
    const char *name;
    char *p, *base; /* base: where its allocation begins */
    size_t size;
};

static struct subject subjects[32];
static size_t count;
static struct mapping mapping;

static void add(const char *name, void *p, void *base, size_t size) {
    subjects[count++] = (struct subject){name, p, base, size};
}

static void all_subjects(void) {
    static char on_stack[64];
    void *pinned, *gone, *registered = aligned_alloc(4096, 8192);
    start();
    for (int k = 0; k <= DRIVER; k++) {
        void *p = memory(k, SIZE);
        add(kind_name[k], p, p, SIZE);
    }
    char *large = memory(MALLOC, 5 * MIB + 1), *waiting = memory(ASYNC, SIZE);
    add("interior", large + 3 * MIB, large, 5 * MIB + 1);
    add("last byte", large + 5 * MIB, large, 5 * MIB + 1);
    add("managed interior", subjects[MANAGED].p + 100, subjects[MANAGED].p, SIZE);
    add("async interior", subjects[ASYNC].p + 100, subjects[ASYNC].p, SIZE);
    NEED(cudaMallocHost(&pinned, SIZE));
    add("pinned", pinned, pinned, SIZE);
    add("pinned interior", (char *)pinned + 100, pinned, SIZE);
    NEED(cudaHostRegister(registered, 8192, cudaHostRegisterDefault));
    add("registered", registered, registered, 8192);
    map(&mapping);
    add("mapping", (void *)mapping.at, (void *)mapping.at, mapping.size);
    add("static", on_stack, on_stack, sizeof on_stack);
    add("heap", malloc(SIZE), NULL, SIZE);
    add("null", NULL, NULL, 0);
    add("0x1234", (void *)0x1234, NULL, 0);
    NEED(cudaFreeAsync(waiting, stream));
    NEED(cudaStreamSynchronize(stream));
    gone = memory(MALLOC, 9 * MIB);
    NEED(cudaFree(gone));
    add("freed", gone, gone, 9 * MIB);
    add("freed interior", (char *)gone + MIB, gone, 9 * MIB);
    gone = memory(MANAGED, 9 * MIB);
    NEED(cudaFree(gone));
    add("managed freed", gone, gone, 9 * MIB);
}

enum meaning { NUMBER, ADDRESS, BASE, BYTES, CONTEXT, ID, POOL };
static const struct {
    const char *name;
    CUpointer_attribute attribute;
    enum meaning meaning;
    size_t width;
} attributes[] = {
    {"context", CU_POINTER_ATTRIBUTE_CONTEXT, CONTEXT, 8},
    {"memory-type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, NUMBER, 4},
    {"device-pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ADDRESS, 8},
    {"host-pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER, ADDRESS, 8},
    {"sync-memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, NUMBER, 4},
    {"buffer-id", CU_POINTER_ATTRIBUTE_BUFFER_ID, ID, 8},
    {"managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, NUMBER, 4},
    {"device", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, NUMBER, 4},
    {"ipc-capable", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, NUMBER, 4},
    {"range-start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, BASE, 8},
    {"range-size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, BYTES, 8},
    {"mapped", CU_POINTER_ATTRIBUTE_MAPPED, NUMBER, 4},
    {"handle-types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, NUMBER, 8},
    {"rdma-capable", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, NUMBER, 4},
    {"access", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, NUMBER, 4},
    {"pool", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, POOL, 8},
};

static const char *value_of(size_t which, uint64_t value, const struct subject *s) {
    static char text[32];
    void *as_pointer = (void *)(uintptr_t)value;
    CUmemoryPool default_pool = NULL;
    CUcontext current = NULL;
    switch (attributes[which].meaning) {
    case ADDRESS:
        return versus(as_pointer, s->p);
    case BASE:
        return as_pointer == s->base ? "base" : versus(as_pointer, s->p);
    case CONTEXT:
        NEED_CU(cuCtxGetCurrent(&current));
        return !value ? "null" : as_pointer == (void *)current ? "current" : "other";
    case ID:
        return value ? "set" : "0";
    case POOL:
        NEED_CU(cuDeviceGetDefaultMemPool(&default_pool, 0));
        return !value                               ? "none"
               : as_pointer == (void *)own_pool     ? "own"
               : as_pointer == (void *)default_pool ? "default"
                                                    : "other";
    case BYTES:
        if (value == s->size)
            return "exact";
        break;
    case NUMBER:
        break;
    }
    snprintf(text, sizeof text, "%lld", attributes[which].width == 4 ? (long long)(int32_t)value : (long long)value);
    return text;
}

static void say_value(size_t which, uint64_t value, const struct subject *s) {
    say("%s=%s", attributes[which].name, value_of(which, value, s));
}

void group_attributes(void) {
    all_subjects();
    for (size_t s = 0; s < count; s++) {
        for (size_t a = 0; a < COUNT_OF(attributes); a++) {
            uint64_t value = 0;
            begin("%s, %s", subjects[s].name, attributes[a].name);
            CUresult error = cuPointerGetAttribute(&value, attributes[a].attribute, (CUdeviceptr)subjects[s].p);
            say_cu(error);
            if (error == CUDA_SUCCESS)
                say_value(a, value, &subjects[s]);
            end();
        }
    }
    unmap(&mapping);
}

void group_plural(void) {
    all_subjects();
    for (size_t s = 0; s < count; s++) {
        CUpointer_attribute asked[COUNT_OF(attributes)];
        uint64_t values[COUNT_OF(attributes)];
        void *into[COUNT_OF(attributes)];
        for (size_t a = 0; a < COUNT_OF(attributes); a++) {
            asked[a] = attributes[a].attribute;
            values[a] = 0;
            into[a] = &values[a];
        }
        begin("%s", subjects[s].name);
        CUresult error = cuPointerGetAttributes(COUNT_OF(attributes), asked, into, (CUdeviceptr)subjects[s].p);
        say_cu(error);
        for (size_t a = 0; error == CUDA_SUCCESS && a < COUNT_OF(attributes); a++)
            say_value(a, values[a], &subjects[s]);
        end();
    }
    unmap(&mapping);
}

void group_runtime_attributes(void) {
    static const char *const types[] = {"unregistered", "host", "device", "managed"};
    all_subjects();
    for (size_t s = 0; s < count; s++) {
        struct cudaPointerAttributes it;
        memset(&it, 0x7f, sizeof it);
        begin("%s", subjects[s].name);
        cudaError_t error = cudaPointerGetAttributes(&it, subjects[s].p);
        say_rt(error);
        if (error == cudaSuccess)
            say("%s device=%d device-pointer=%s host-pointer=%s", types[it.type & 3], it.device,
                versus(it.devicePointer, subjects[s].p), versus(it.hostPointer, subjects[s].p));
        end();
    }
    unmap(&mapping);
}

static unsigned long long id_of(const void *p) {
    unsigned long long id = 0;
    NEED_CU(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)p));
    return id;
}

/* The buffer's number is how libraries notice that an address has a new owner. */
void group_identity(void) {
    start();
    for (int k = 0; k < KINDS; k++) {
        char *a = memory(k, 4096), *b = memory(k, 4096);
        unsigned long long id = id_of(a), other = id_of(b);
        begin("%s", kind_name[k]);
        say("interior %s, another block %s", id_of(a + 4095) == id ? "same" : "differs", other == id ? "same" : "differs");
        drop(a);
        NEED(cudaDeviceSynchronize());
        char *again = memory(k, 4096);
        say(", a later block %s", id_of(again) == id || id_of(again) == other ? "same" : "differs");
        drop(b);
        drop(again);
        end();
    }
    char *a = memory(MALLOC, 4096), *b = memory(MALLOC, 4096);
    unsigned yes = 1, no = 0, value = 7;
    line("set sync memops", "%s", cu(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)a)));
    NEED_CU(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)a));
    line("sync memops of the block", "%u", value);
    NEED_CU(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)b));
    line("sync memops of its neighbour", "%u", value);
    line("set sync memops of an interior pointer", "%s",
         cu(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)(a + 100))));
    line("set sync memops of the stack", "%s",
         cu(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)&no)));
    line("set an attribute that is read only", "%s",
         cu(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_IS_MANAGED, (CUdeviceptr)a)));
    NEED(cudaFree(a));
    line("set sync memops of a freed block", "%s",
         cu(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)a)));
    a = memory(MALLOC, 4096);
    NEED_CU(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)a));
    line("sync memops of a new block", "%u", value);
}

static void say_range(char *p, char *expected, size_t size) {
    CUdeviceptr base = (CUdeviceptr)KEPT;
    size_t bytes = 7;
    CUresult error = cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)p);
    say_cu(error);
    say("%s", (char *)base == expected ? "base" : pointer((void *)base));
    if (bytes == size)
        say("exact");
    else
        say("%zu", bytes);
}

void group_ranges(void) {
    static const size_t sizes[] = {1, 257, 1000, 2 * MIB, 3 * MIB + 17};
    all_subjects();
    for (size_t s = 0; s < count; s++) {
        begin("%s", subjects[s].name);
        say_range(subjects[s].p, subjects[s].base, subjects[s].size);
        end();
    }
    unmap(&mapping);
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            char *p = memory(k, sizes[i]);
            begin("%s(%zu)", kind_name[k], sizes[i]);
            say_range(p, p, sizes[i]);
            end();
            begin("%s(%zu), last byte", kind_name[k], sizes[i]);
            say_range(p + sizes[i] - 1, p, sizes[i]);
            end();
            if (sizes[i] % 256 != 0) { /* else the next block may begin there */
                begin("%s(%zu), behind its end", kind_name[k], sizes[i]);
                say_range(p + sizes[i], p, sizes[i]);
                end();
            }
            drop(p);
        }
    }
}

static size_t free_now(void) {
    size_t free_bytes = 0, total = 0;
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemGetInfo(&free_bytes, &total));
    if (free_bytes > total)
        line("free above total", "yes");
    return free_bytes;
}

void group_memory_info(void) {
    start();
    size_t free_bytes = 0, total = 0, device_total = 0, runtime_free = 0, runtime_total = 0;
    line("cuMemGetInfo", "%s", cu(cuMemGetInfo(&free_bytes, &total)));
    line("free above 0", "%s", yes_no(free_bytes > 0));
    line("free at most total", "%s", yes_no(free_bytes <= total));
    NEED_CU(cuDeviceTotalMem(&device_total, 0));
    line("total is the device's", "%s", yes_no(total == device_total));
    NEED(cudaMemGetInfo(&runtime_free, &runtime_total));
    line("the runtime says the same", "%s", yes_no(runtime_free == free_bytes && runtime_total == total));
    for (int k = 0; k < KINDS; k++) {
        if (k == GRAPH) /* graphs keep theirs */
            continue;
        drop(memory(k, 64 * MIB)); /* what a first one takes for itself is no matter */
        CUmemoryPool pool;
        NEED_CU(cuDeviceGetDefaultMemPool(&pool, 0));
        cuMemPoolTrimTo(pool, 0);
        size_t before = free_now();
        void *p = memory(k, 64 * MIB);
        size_t during = free_now();
        drop(p);
        NEED(cudaDeviceSynchronize());
        cuMemPoolTrimTo(pool, 0);
        cuMemPoolTrimTo(own_pool, 0);
        size_t after = free_now();
        begin("%s(64MiB)", kind_name[k]);
        say("taken: %s, returned: %s", yes_no(during + 64 * MIB <= before), yes_no(after >= before));
        end();
    }
    struct mapping m;
    size_t before = free_now();
    map(&m);
    line("mapping taken", "%s", yes_no(free_now() + m.size <= before));
    unmap(&m);
    line("mapping returned", "%s", yes_no(free_now() >= before));
}
