/*
 * next.c: see next.h. No state. glibc has dlvsym, which we do not export. musl has not; programs of musl inherit LD_PRELOAD too,
 * never use CUDA, and only have to run, so there the definition is read off the loaded objects. What musl lacks is referenced
 * weakly all over the shim.
 */
#include "next.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#pragma weak dlvsym

__attribute__((visibility("default"))) const char cuplug_loaded = 1;

struct search {
    const char *name;
    ElfW(Addr) own; /* where this library is loaded */
    void *found;
};

CUPLUG_EARLY static int search_object(struct dl_phdr_info *info, size_t size, void *argument) {
    struct search *search = argument;
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *symbols = NULL;
    const uint32_t *hash = NULL; /* of System V: buckets, symbols; musl's own library has it */
    const char *strings = NULL;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = (const void *)(info->dlpi_addr + dynamic->d_un.d_ptr); /* musl does not relocate these */

        if (dynamic->d_tag == DT_SYMTAB)
            symbols = address;
        else if (dynamic->d_tag == DT_STRTAB)
            strings = address;
        else if (dynamic->d_tag == DT_HASH)
            hash = address;
    }
    if (!symbols || !strings || !hash || info->dlpi_addr == search->own)
        return 0;
    for (uint32_t i = 1; i < hash[1] && !search->found; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && strcmp(strings + symbols[i].st_name, search->name) == 0)
            search->found = (void *)(info->dlpi_addr + symbols[i].st_value);
    return search->found != NULL;
}

/* glibc's own dlsym, which can be asked for by version only. */
CUPLUG_EARLY static void *glibc_dlsym(void) {
    /* The architecture's first version, which every glibc has, and the one of the move into libc. */
#if defined(__x86_64__)
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#elif defined(__aarch64__)
    static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif
    void *found = NULL;

    for (unsigned i = 0; dlvsym && !found && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return found;
}

CUPLUG_EARLY void *cuplug_next(const char *name) {
    void *(*real_dlsym)(void *, const char *) = glibc_dlsym();
    struct search search = {.name = name};
    Dl_info self;

    if (real_dlsym) {
        search.found = real_dlsym(RTLD_NEXT, name); /* of any version: most preloads give theirs none */
    } else if (dladdr((void *)glibc_dlsym, &self)) {
        search.own = (ElfW(Addr))self.dli_fbase;
        dl_iterate_phdr(search_object, &search);
    }
    return search.found;
}

struct order {
    ElfW(Addr) ours, libc; /* where they are loaded */
    int first;             /* 1 ours, 2 the C library */
};

static int look_for_first(struct dl_phdr_info *info, size_t size, void *argument) {
    struct order *order = argument;

    (void)size;
    order->first = info->dlpi_addr == order->ours ? 1 : info->dlpi_addr == order->libc ? 2 : 0;
    return order->first;
}

bool cuplug_before_libc(void) {
    void *real_dlsym = glibc_dlsym(); /* by version: other preloads may stand in front with any name of the C library's */
    struct order order = {0};
    Dl_info self, libc;

    if (!real_dlsym || !dladdr((void *)glibc_dlsym, &self) || !dladdr(real_dlsym, &libc))
        return true;
    order.ours = (ElfW(Addr))self.dli_fbase;
    order.libc = (ElfW(Addr))libc.dli_fbase;
    dl_iterate_phdr(look_for_first, &order); /* in the order of loading */
    return order.first == 1;
}

CUPLUG_EARLY bool cuplug_same_object(const void *one, const void *other) {
    Dl_info first, second;

    return dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase;
}
