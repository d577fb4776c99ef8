/*
 * elf.c: see elf.h. Every offset is checked against the file's size before it is followed.
 */
#include "elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_NONE };
#endif

static const void *at(const struct cuplug_elf *elf, size_t offset, size_t length) {
    return offset <= elf->size && length <= elf->size - offset ? elf->bytes + offset : NULL;
}

/* A string of the file that ends inside it. */
static const char *string_at(const struct cuplug_elf *elf, size_t offset) {
    return offset < elf->size && memchr(elf->bytes + offset, 0, elf->size - offset) ? elf->bytes + offset : NULL;
}

static const char *dynamic_string(const struct cuplug_elf *elf, size_t offset) {
    return offset < elf->strings_size && memchr(elf->strings + offset, 0, elf->strings_size - offset) ? elf->strings + offset
                                                                                                      : NULL;
}

static enum cuplug_elf_kind kind_of(const struct cuplug_elf *elf) {
    const Elf64_Ehdr *header = at(elf, 0, EI_NIDENT);

    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return CUPLUG_ELF_NONE;
    if (header->e_ident[EI_CLASS] == ELFCLASS32)
        return CUPLUG_ELF_32;
    if (elf->size < sizeof *header || header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != MACHINE)
        return CUPLUG_ELF_FOREIGN;
    return CUPLUG_ELF_NATIVE;
}

static void read_segments(struct cuplug_elf *elf) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf->bytes;

    for (int i = 0; i < header->e_phnum; i++) {
        const Elf64_Phdr *segment = at(elf, header->e_phoff + (size_t)i * sizeof *segment, sizeof *segment);

        if (!segment)
            return;
        if (segment->p_type == PT_INTERP)
            elf->interpreter = string_at(elf, segment->p_offset);
        if (segment->p_type == PT_DYNAMIC) {
            elf->dynamic = true;
            elf->dynamic_entries = at(elf, segment->p_offset, segment->p_filesz);
            elf->dynamic_count = elf->dynamic_entries ? segment->p_filesz / sizeof(Elf64_Dyn) : 0;
        }
    }
}

/* The dynamic symbols and their strings are found by the section table, which a file may lack: then the answers about them are
 * no. */
static void read_sections(struct cuplug_elf *elf) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf->bytes;

    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *section = at(elf, header->e_shoff + (size_t)i * sizeof *section, sizeof *section);
        const Elf64_Shdr *strings;

        if (!section || section->sh_type != SHT_DYNSYM)
            continue;
        strings = at(elf, header->e_shoff + (size_t)section->sh_link * sizeof *strings, sizeof *strings);
        elf->symbols = at(elf, section->sh_offset, section->sh_size);
        elf->symbol_count = elf->symbols ? section->sh_size / sizeof(Elf64_Sym) : 0;
        elf->strings = strings ? at(elf, strings->sh_offset, strings->sh_size) : NULL;
        elf->strings_size = elf->strings ? strings->sh_size : 0;
        return;
    }
}

bool cuplug_elf_open(struct cuplug_elf *elf, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    void *bytes;

    *elf = (struct cuplug_elf){0};
    if (fd < 0)
        return false;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
        close(fd);
        errno = S_ISDIR(status.st_mode) ? EISDIR : ENOEXEC;
        return false;
    }
    bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    elf->bytes = bytes;
    elf->size = (size_t)status.st_size;
    elf->kind = kind_of(elf);
    if (elf->kind != CUPLUG_ELF_NATIVE)
        return true;
    read_segments(elf);
    read_sections(elf);
    for (size_t i = 0; i < elf->dynamic_count; i++) {
        const Elf64_Dyn *entry = (const Elf64_Dyn *)elf->dynamic_entries + i;

        if (entry->d_tag == DT_RPATH)
            elf->rpath = dynamic_string(elf, entry->d_un.d_val);
        if (entry->d_tag == DT_RUNPATH)
            elf->runpath = dynamic_string(elf, entry->d_un.d_val);
    }
    return true;
}

void cuplug_elf_close(struct cuplug_elf *elf) {
    if (elf->bytes)
        munmap((void *)elf->bytes, elf->size);
    *elf = (struct cuplug_elf){0};
}

const char *cuplug_elf_needs(const struct cuplug_elf *elf, const char *prefix) {
    for (size_t i = 0; i < elf->dynamic_count; i++) {
        const Elf64_Dyn *entry = (const Elf64_Dyn *)elf->dynamic_entries + i;
        const char *name = entry->d_tag == DT_NEEDED ? dynamic_string(elf, entry->d_un.d_val) : NULL;

        if (name && strncmp(name, prefix, strlen(prefix)) == 0)
            return name;
    }
    return NULL;
}

bool cuplug_elf_has_symbol(const struct cuplug_elf *elf, const char *name, bool defined) {
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = (const Elf64_Sym *)elf->symbols + i;
        const char *own = dynamic_string(elf, symbol->st_name);

        if (own && (symbol->st_shndx != SHN_UNDEF) == defined && strcmp(own, name) == 0)
            return true;
    }
    return false;
}

bool cuplug_elf_holds(const struct cuplug_elf *elf, const char *string) {
    return memmem(elf->bytes, elf->size, string, strlen(string) + 1) != NULL;
}
