/*
 * procaddr.c — which entry points this driver has, and how they are found.
 *
 * SIMCUDA_DRIVER decides: what came later is hidden from cuGetProcAddress and, by emptying its entry in our own dynamic
 * symbol table, from dlsym too. A driver of the far future (99000) has two hundred functions nobody has heard of.
 */
#include "entry.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUTURE_DRIVER 99000
#define FUTURE_NAMES 200

/* clang-format off */
#define F1(n)                                                                                                                    \
    CUresult cuFuture##n(void);                                                                                                  \
    CUresult cuFuture##n(void) {                                                                                                 \
        return CUDA_SUCCESS;                                                                                                     \
    }
#define F10(n) F1(n##0) F1(n##1) F1(n##2) F1(n##3) F1(n##4) F1(n##5) F1(n##6) F1(n##7) F1(n##8) F1(n##9)
#define F100(n) F10(n##0) F10(n##1) F10(n##2) F10(n##3) F10(n##4) F10(n##5) F10(n##6) F10(n##7) F10(n##8) F10(n##9)
F100(0)
F100(1)
#undef F1
#define F1(n) (void *)cuFuture##n,
static void *const future[FUTURE_NAMES] = {F100(0) F100(1)};
#undef F1
#undef F10
#undef F100
/* clang-format on */

static bool has(const struct sim_symbol *s) {
    return s->since <= sim_knobs.driver;
}

static void *future_address(const char *name) {
    if (strncmp(name, "cuFuture", 8) != 0 || strlen(name) != 11)
        return NULL;
    int n = atoi(name + 8);
    return n >= 0 && n < FUTURE_NAMES ? future[n] : NULL;
}

static bool absent(const char *export) {
    if (strncmp(export, "cuFuture", 8) == 0)
        return sim_knobs.driver < FUTURE_DRIVER;
    for (int i = 0; i < SIM_ROWS; i++)
        if (strcmp(sim_symbols[i].export, export) == 0)
            return !has(&sim_symbols[i]);
    return false;
}

/* The loader passes over a symbol whose value is zero, as if it had never been defined. */
static void hide_what_came_later(void) {
    ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (ElfW(Sym) *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
        else if (d->d_tag == DT_HASH)
            hash = (const uint32_t *)d->d_un.d_ptr;
    }
    if (!symbols || !strings || !hash)
        return;
    size_t count = hash[1], page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)symbols & ~(page - 1), to = (uintptr_t)(symbols + count);
    if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) != 0)
        return;
    for (size_t i = 1; i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && absent(strings + symbols[i].st_name))
            symbols[i].st_value = 0;
    mprotect((void *)from, to - from, PROT_READ);
}

__attribute__((constructor)) static void loaded(void) {
    sim_knobs_load();
    if (sim_knobs.driver < 13000 || sim_knobs.driver < FUTURE_DRIVER)
        hide_what_came_later();
}

static const struct sim_symbol *best(const char *asked, int version, bool per_thread) {
    const struct sim_symbol *found = NULL;
    for (int i = 0; i < SIM_ROWS; i++) {
        const struct sim_symbol *s = &sim_symbols[i];
        if (strcmp(s->asked, asked) != 0 || s->since > version || !has(s) || (s->per_thread && !per_thread))
            continue;
        if (!found || s->since > found->since || (s->since == found->since && s->per_thread))
            found = s;
        else if (s->per_thread && s->since >= found->since)
            found = s;
    }
    return found;
}

static bool known(const char *asked) {
    for (int i = 0; i < SIM_ROWS; i++)
        if (strcmp(sim_symbols[i].asked, asked) == 0 && has(&sim_symbols[i]))
            return true;
    return false;
}

CUresult sim_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    const cuuint64_t understood = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !pfn)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    if (status)
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (version > sim_knobs.driver || ((flags & ~understood) && sim_knobs.driver < FUTURE_DRIVER))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_knobs.driver >= FUTURE_DRIVER)
        *pfn = future_address(symbol);
    if (!*pfn) {
        const struct sim_symbol *s = best(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
        *pfn = s ? s->address : NULL;
    }
    if (status)
        *status = *pfn            ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known(symbol) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags) {
    return sim_cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}

CUresult sim_cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL; /* the private tables of the real driver: nobody's business */
    return CUDA_ERROR_NOT_FOUND;
}
