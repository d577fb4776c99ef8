/*
 * model.c: who has which byte. Two arrays with a word for each 512 bytes of addresses, as that is how close to each other the
 * driver's blocks are: `owner`, what the program has; `device`, what the work of the device has come to. Both are sparse: memory
 * that nobody touches costs nothing.
 *
 * In `device` a word is 2 * id + 1 from the first use of block `id` to the last, then 2 * id. Ids grow from one owner of a byte
 * to the next, in the order of the program, so the device meets them in another order only if a block was handed on too early.
 */
#include "soak.h"

#include <signal.h>
#include <sys/mman.h>

#define GRAIN ((size_t)512)
#define WINDOW ((size_t)1 << 40) /* all device memory is in it: the simulated driver's comes from mmap */
#define MARKED ((size_t)64)      /* bytes at each end of a block that hold its pattern */

struct soak soak;
struct tally tally;
static uintptr_t window;
static _Atomic uint32_t *owner;
static uint32_t *device;
static _Atomic uint32_t ids;
static _Thread_local int at_thread = -1;
static _Thread_local uint64_t at_operation;
static atomic_flag said = ATOMIC_FLAG_INIT;

void at(int thread, uint64_t operation) {
    at_thread = thread;
    at_operation = operation;
}

void wrong(const char *format, ...) {
    char text[512];
    va_list args;

    while (atomic_flag_test_and_set(&said)) /* another thread is about to end the process */
        sleep_ms(1000);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "soak: seed %llu, %d threads, thread %d, operation %llu: %s\n", (unsigned long long)soak.seed, soak.threads,
            at_thread, (unsigned long long)at_operation, text);
    fflush(stderr);
    _exit(1);
}

static void crashed(int signal) {
    wrong("signal %d: memory that the program owns is not there, or the library crashed", signal);
}

void model_init(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, rights = PROT_READ | PROT_WRITE;
    void *probe = mmap(NULL, GRAIN, rights, flags, -1, 0);

    window = ((uintptr_t)probe - WINDOW / 2) & ~(GRAIN - 1);
    owner = mmap(NULL, WINDOW / GRAIN * sizeof *owner, rights, flags, -1, 0);
    device = mmap(NULL, WINDOW / GRAIN * sizeof *device, rights, flags, -1, 0);
    if (probe == MAP_FAILED || (void *)owner == MAP_FAILED || device == MAP_FAILED)
        die("no address space for the model");
#ifndef SANITIZED
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
#else
    (void)crashed;
#endif
}

static size_t grain_of(CUdeviceptr address) {
    if (address < window || address - window >= WINDOW)
        wrong("address %#llx is outside of the model's window", address);
    return (address - window) / GRAIN;
}

static size_t grains(size_t size) {
    return (size + GRAIN - 1) / GRAIN;
}

uint32_t model_id(void) {
    uint32_t id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1;

    if (id >= UINT32_MAX / 2)
        wrong("the model has no more ids");
    return id;
}

void model_claim(const struct block *block) {
    size_t first = grain_of(block->address), count = grains(block->size);

    if (block->address % GRAIN)
        wrong("block %u of %zu bytes is at %#llx, which is no multiple of 512", block->id, block->size, block->address);
    for (size_t i = first; i < first + count; i++) {
        uint32_t before = atomic_exchange_explicit(&owner[i], block->id, memory_order_relaxed);

        if (before)
            wrong("two owners: block %u of %zu bytes at %#llx got bytes of block %u, which is live", block->id, block->size,
                  block->address, before);
    }
}

void model_release(const struct block *block) {
    size_t first = grain_of(block->address), count = grains(block->size);

    for (size_t i = first; i < first + count; i++) {
        uint32_t before = atomic_exchange_explicit(&owner[i], 0, memory_order_relaxed);

        if (before != block->id)
            wrong("two owners: bytes of block %u at %#llx belong to block %u when it is freed", block->id, block->address,
                  before);
    }
}

bool model_free(CUdeviceptr address) {
    return atomic_load(&owner[grain_of(address)]) == 0;
}

struct visited {
    struct thread *thread;
    uint64_t operation;
    enum visit what;
    CUdeviceptr address;
    size_t size;
    uint32_t id;
    atomic_bool *done;
};

static const char *const visits[] = {"first use", "use", "last use"};

/* Not watched by the thread sanitizer, which would need longer than all the rest; the words themselves tell. */
__attribute__((no_sanitize("thread"))) static void mark(const struct visited *v) {
    volatile uint32_t *words = &device[grain_of(v->address)];
    uint32_t live = 2 * v->id + 1, leaves = v->what == LAST_USE ? 2 * v->id : live;
    size_t count = grains(v->size);

    for (size_t i = 0; i < count; i++) {
        uint32_t found = words[i];

        if (v->what == FIRST_USE ? (found & 1) != 0 || found / 2 >= v->id : found != live)
            wrong("reuse before order: at the %s of block %u (%#llx, %zu bytes) byte %zu is %s block %u on the device",
                  visits[v->what], v->id, v->address, v->size, i * GRAIN, found & 1 ? "in use by" : "past the last use of",
                  found / 2);
        if (found != leaves)
            words[i] = leaves;
    }
}

/* The block's own memory, at both ends. */
static void touch(const struct visited *v) {
    unsigned char *bytes = (unsigned char *)v->address;
    size_t ends = v->size < MARKED ? v->size : MARKED;
    int pattern = (int)(v->id % 251 + 1);

    if (v->what == FIRST_USE) {
        memset(bytes, pattern, ends);
        memset(bytes + v->size - ends, pattern, ends);
    } else if (wrong_bytes(bytes, pattern, ends) || wrong_bytes(bytes + v->size - ends, pattern, ends)) {
        wrong("contents: at the %s of block %u (%#llx, %zu bytes) its pattern is not there", visits[v->what], v->id, v->address,
              v->size);
    }
}

static void CUDA_CB node(void *data) {
    const struct visited *v = data;

    at(v->thread->number, v->operation);
    if (v->what == LAST_USE) {
        touch(v);
        mark(v);
    } else if (v->what != NO_USE) {
        mark(v);
        touch(v);
    }
    if (v->done)
        atomic_store(v->done, true);
}

static void CUDA_CB once(void *data) {
    struct visited *v = data;

    node(v);
    atomic_fetch_sub(&v->thread->queued, 1);
    free(v);
}

static void CUDA_CB drop(void *data) {
    struct visited *v = data;

    atomic_fetch_sub(&v->thread->queued, 1);
    free(v);
}

static struct visited *describe(struct thread *t, enum visit what, const struct block *block) {
    struct visited *v = malloc(sizeof *v);

    if (!v)
        die("no host memory");
    *v = (struct visited){t, t->operation, what, block->address, block->size, block->id, NULL};
    return v;
}

void visit(struct thread *t, enum visit what, const struct block *block, CUstream stream, atomic_bool *done) {
    struct visited *v = describe(t, what, block);

    v->done = done;
    atomic_fetch_add(&t->queued, 1);
    MUST(cuLaunchHostFunc(stream, once, v));
}

void *visit_node(struct thread *t, const struct block *block, CUstream stream) {
    struct visited *v = describe(t, USE, block);
    int result = (int)cuLaunchHostFunc(stream, node, v);

    if (result == CUDA_SUCCESS)
        return v;
    free(v);
    if (result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        must(result, "cuLaunchHostFunc in a capture");
    return NULL;
}

void visit_forget(struct thread *t, void *node, CUstream stream) {
    atomic_fetch_add(&t->queued, 1);
    MUST(cuLaunchHostFunc(stream, drop, node));
}
