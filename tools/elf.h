/*
 * elf.h: the little of an ELF file that `cuplug doctor` asks for. A damaged or foreign file gives fewer answers, never a crash.
 */
#ifndef CUPLUG_ELF_H
#define CUPLUG_ELF_H

#include <stdbool.h>
#include <stddef.h>

enum cuplug_elf_kind { CUPLUG_ELF_NONE, CUPLUG_ELF_32, CUPLUG_ELF_FOREIGN, CUPLUG_ELF_NATIVE };

struct cuplug_elf {
    const char *bytes; /* the file, mapped */
    size_t size;
    enum cuplug_elf_kind kind;   /* the rest is filled for CUPLUG_ELF_NATIVE only */
    const char *interpreter;     /* the loader; NULL in a static program or a library */
    const char *rpath, *runpath; /* NULL for none */
    bool dynamic;                /* has a dynamic section */
    const void *dynamic_entries; /* of the file; Elf64_Dyn */
    size_t dynamic_count;
    const char *strings; /* of the dynamic section and symbols */
    size_t strings_size;
    const void *symbols; /* Elf64_Sym */
    size_t symbol_count;
};

/* False with errno if the file cannot be read. */
bool cuplug_elf_open(struct cuplug_elf *elf, const char *path);
void cuplug_elf_close(struct cuplug_elf *elf);

/* The first NEEDED library whose name starts so, NULL if there is none. */
const char *cuplug_elf_needs(const struct cuplug_elf *elf, const char *prefix);

/* Is there a dynamic symbol of that name, defined here or (defined == false) taken from elsewhere? */
bool cuplug_elf_has_symbol(const struct cuplug_elf *elf, const char *name, bool defined);

/* Does the file hold that string, with its final NUL? */
bool cuplug_elf_holds(const struct cuplug_elf *elf, const char *string);

#endif
