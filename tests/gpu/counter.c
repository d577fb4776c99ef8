/* counter.c — an independent count of the calls that reach the real driver. Preloaded behind the shim
 * (LD_PRELOAD="libcuplug.so libcounter.so") or alone, it answers look-ups of the names in ROWS with an entry that
 * adds one and jumps on, the same address through dlsym and through cuGetProcAddress. At exit it writes the counts as
 * JSON to $COUNTER_OUT.<pid>, if there were any. It shares nothing with the shim, on purpose.
 * No locks: the rows are filled with values that never change. It must never answer a look-up that is not for the
 * driver: RTLD_NEXT, RTLD_DEFAULT and other names jump to the real dlsym, whose answer depends on its caller. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the counter is written for x86-64, the machine of the GPU run"
#endif

#define ROWS(ROW)                                                                                                                \
    ROW(cuMemAlloc_v2)                                                                                                           \
    ROW(cuMemFree_v2)                                                                                                            \
    ROW(cuMemAllocPitch_v2)                                                                                                      \
    ROW(cuMemAllocAsync)                                                                                                         \
    ROW(cuMemAllocAsync_ptsz)                                                                                                    \
    ROW(cuMemFreeAsync)                                                                                                          \
    ROW(cuMemFreeAsync_ptsz)                                                                                                     \
    ROW(cuMemAllocFromPoolAsync)                                                                                                 \
    ROW(cuMemAllocFromPoolAsync_ptsz)                                                                                            \
    ROW(cuMemAllocManaged)                                                                                                       \
    ROW(cuMemCreate)                                                                                                             \
    ROW(cuCtxRecordEvent)                                                                                                        \
    ROW(cuCtxWaitEvent)                                                                                                          \
    ROW(cuCtxSynchronize)

#define HIDDEN __attribute__((visibility("hidden")))

struct row {
    const char *name;
    void *entry; /* what we hand out */
    void *real;  /* the driver's function, NULL until resolved or when the driver lacks it */
    uint64_t calls;
};

/* One entry per row: count, then jump to the driver with registers and stack as they came, so no signature is
 * needed. The offsets are those of struct row: calls at 24, real at 16, a row is 32 bytes. */
_Static_assert(sizeof(struct row) == 32 && offsetof(struct row, real) == 16 && offsetof(struct row, calls) == 24,
               "the entries below know the layout of struct row");

enum row_index {
#define ROW(symbol) INDEX_##symbol,
    ROWS(ROW)
#undef ROW
        ROW_COUNT
};

#define ROW(symbol) HIDDEN void entry_##symbol(void);
ROWS(ROW)
#undef ROW

HIDDEN struct row counter_rows[ROW_COUNT] = {
#define ROW(symbol) {.name = #symbol, .entry = (void *)entry_##symbol},
    ROWS(ROW)
#undef ROW
};

__asm__(".pushsection .text\n"
        ".set next_row, 0\n"
#define ROW(symbol)                                                                                                              \
    ".globl entry_" #symbol "\n.hidden entry_" #symbol "\n.type entry_" #symbol ", @function\nentry_" #symbol                    \
    ":\n  endbr64\n  lock incq counter_rows+next_row+24(%rip)\n  jmp *counter_rows+next_row+16(%rip)\n"                          \
    ".size entry_" #symbol ", .-entry_" #symbol "\n.set next_row, next_row+32\n"
        ROWS(ROW)
#undef ROW
            ".popsection\n");

typedef void *dlsym_fn(void *, const char *);
HIDDEN dlsym_fn *counter_real_dlsym;

/* Also called by the stub below, because another library's constructor may look symbols up before ours ran. */
HIDDEN void counter_find_dlsym(void);
void counter_find_dlsym(void) {
    void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!found)
        found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    __atomic_store_n(&counter_real_dlsym, (dlsym_fn *)found, __ATOMIC_RELAXED);
}

/* The stub: only a real handle with a name that starts with "cu" goes to counter_lookup; all else tail-jumps. */
__asm__(".pushsection .text\n"
        ".globl counter_dlsym\n.type counter_dlsym, @function\n"
        "counter_dlsym:\n"
        "  endbr64\n"
        "  cmpq $0, counter_real_dlsym(%rip)\n"
        "  jne 1f\n"
        "  pushq %rdi\n  pushq %rsi\n  subq $8, %rsp\n"
        "  call counter_find_dlsym\n"
        "  addq $8, %rsp\n  popq %rsi\n  popq %rdi\n"
        "1:\n"
        "  leaq 1(%rdi), %rax\n"
        "  cmpq $1, %rax\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "  jbe 2f\n"
        "  testq %rsi, %rsi\n"
        "  je 2f\n"
        "  cmpb $'c', (%rsi)\n"
        "  jne 2f\n"
        "  cmpb $'u', 1(%rsi)\n"
        "  je counter_lookup\n"
        "2:\n"
        "  jmp *counter_real_dlsym(%rip)\n"
        ".size counter_dlsym, .-counter_dlsym\n"
        /* Both of the C library's versions: a shim in front of us may ask for either by dlvsym. */
        ".globl dlsym_old\n.type dlsym_old, @function\n.set dlsym_old, counter_dlsym\n"
        ".globl dlsym_new\n.type dlsym_new, @function\n.set dlsym_new, counter_dlsym\n"
        ".symver dlsym_old, dlsym@GLIBC_2.2.5\n"
        ".symver dlsym_new, dlsym@@GLIBC_2.34\n"
        ".popsection\n");

/* cuGetProcAddress, in the form before and since CUDA 12. */
typedef int proc_v1_fn(const char *, void **, int, uint64_t);
typedef int proc_v2_fn(const char *, void **, int, uint64_t, int *);
static proc_v1_fn *real_proc_v1;
static proc_v2_fn *real_proc_v2;
static int count_proc_v1(const char *name, void **function, int version, uint64_t flags);
static int count_proc_v2(const char *name, void **function, int version, uint64_t flags, int *status);

/* Fills the table from the driver, once it is loaded; what several threads write here is the same. */
static void resolve_rows(void) {
    static int resolved;
    if (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE))
        return;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        return;
    for (int i = 0; i < ROW_COUNT; i++)
        __atomic_store_n(&counter_rows[i].real, counter_real_dlsym(driver, counter_rows[i].name), __ATOMIC_RELAXED);
    real_proc_v1 = (proc_v1_fn *)counter_real_dlsym(driver, "cuGetProcAddress");
    real_proc_v2 = (proc_v2_fn *)counter_real_dlsym(driver, "cuGetProcAddress_v2");
    __atomic_store_n(&resolved, 1, __ATOMIC_RELEASE); /* pairs with the load above */
}

/* Goes by the address alone: the driver answers every way of asking with its ELF export. */
static void *counting_entry(void *found) {
    if (!found)
        return NULL;
    if (found == (void *)real_proc_v1)
        return (void *)count_proc_v1;
    if (found == (void *)real_proc_v2)
        return (void *)count_proc_v2;
    for (int i = 0; i < ROW_COUNT; i++)
        if (found == counter_rows[i].real)
            return counter_rows[i].entry;
    return found;
}

static int count_proc_v1(const char *name, void **function, int version, uint64_t flags) {
    int result = real_proc_v1(name, function, version, flags);
    if (result == 0 && function)
        *function = counting_entry(*function);
    return result;
}

static int count_proc_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    int result = real_proc_v2(name, function, version, flags, status);
    if (result == 0 && function)
        *function = counting_entry(*function);
    return result;
}

HIDDEN void *counter_lookup(void *handle, const char *name);
void *counter_lookup(void *handle, const char *name) {
    void *found = counter_real_dlsym(handle, name);
    resolve_rows();
    return counting_entry(found);
}

/* The whole file is formatted first and written at once: a reader never sees half of it. */
__attribute__((destructor)) static void write_counts(void) {
    const char *prefix = getenv("COUNTER_OUT");
    char path[4096], text[2048];
    size_t used = 0;
    uint64_t total = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        uint64_t calls = __atomic_load_n(&counter_rows[i].calls, __ATOMIC_RELAXED);
        total += calls;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %llu", i ? ", " : "{", counter_rows[i].name,
                                 (unsigned long long)calls);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "}\n");
    if (!prefix || total == 0 || snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid()) >= (int)sizeof path)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    if (write(fd, text, used) != (ssize_t)used)
        perror("counter: write");
    close(fd);
}
