/*
 * doctor_program.c: whether a preload can reach a program at all, and how the program reaches CUDA, as far as its file tells.
 * Runs nothing.
 */
#include "doctor.h"

#include "elf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Where a shell would find it. */
static bool find_program(const char *name, char *path, size_t room) {
    const char *folders = getenv("PATH");

    if (strchr(name, '/'))
        return snprintf(path, room, "%s", name) < (int)room && access(path, F_OK) == 0;
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");

        if (snprintf(path, room, "%.*s/%s", length ? (int)length : 1, length ? folders : ".", name) < (int)room &&
            access(path, X_OK) == 0)
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

/* The program that runs a script: of "#!/usr/bin/env NAME" it is NAME. False if the file is no script. */
static bool interpreter_of(const struct cuplug_elf *file, char *name, size_t room) {
    char line[256] = "", *first, *second, *rest = NULL;

    if (file->size < 3 || memcmp(file->bytes, "#!", 2) != 0)
        return false;
    snprintf(line, sizeof line, "%.*s", (int)(file->size - 2 < sizeof line - 1 ? file->size - 2 : sizeof line - 1),
             file->bytes + 2);
    line[strcspn(line, "\n")] = 0;
    first = strtok_r(line, " \t", &rest);
    second = first ? strtok_r(NULL, " \t", &rest) : NULL;
    if (!first)
        return false;
    if (second && strlen(first) > 4 && strcmp(first + strlen(first) - 4, "/env") == 0)
        first = second;
    return snprintf(name, room, "%s", first) < (int)room;
}

static void check_privileges(const char *path) {
    struct stat status;

    if (stat(path, &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)))
        cuplug_doctor_say(CUPLUG_PROBLEM, "setuid", "yes: the loader ignores a preload for a program that gains privileges");
    else if (getxattr(path, "security.capability", NULL, 0) > 0)
        cuplug_doctor_say(CUPLUG_PROBLEM, "setuid", "it has file capabilities: the loader ignores a preload for such a program");
    else
        cuplug_doctor_say(CUPLUG_OK, "setuid", "no");
}

/* The order that gcc's sanitizers insist on. clang's are inside the program and do not care. */
static void check_sanitizer(const struct cuplug_elf *elf) {
    const char *runtime = cuplug_elf_needs(elf, "libasan.so");
    const char *preload = getenv("LD_PRELOAD");
    const char *first;

    if (!runtime)
        runtime = cuplug_elf_needs(elf, "libtsan.so");
    if (!runtime) {
        if (cuplug_elf_has_symbol(elf, "__asan_init", true))
            cuplug_doctor_say(CUPLUG_OK, "sanitizer", "clang's AddressSanitizer, which does not mind a preload");
        return;
    }
    first = preload ? strstr(preload, strndupa(runtime, strcspn(runtime, "."))) : NULL;
    if (first && !memchr(preload, ':', (size_t)(first - preload)) && !memchr(preload, ' ', (size_t)(first - preload)))
        cuplug_doctor_say(CUPLUG_OK, "sanitizer", "%s comes first in LD_PRELOAD", runtime);
    else
        cuplug_doctor_say(
            CUPLUG_PROBLEM, "sanitizer",
            "gcc's %s must come first: LD_PRELOAD=$(gcc -print-file-name=%s) cuplug run -- PROGRAM (run appends to LD_PRELOAD)",
            runtime, strndupa(runtime, strcspn(runtime, ".") + 3));
}

static void check_cudart(const struct cuplug_elf *elf) {
    const char *runtime = cuplug_elf_needs(elf, "libcudart.so"), *driver = cuplug_elf_needs(elf, "libcuda.so");
    bool inside = !runtime && cuplug_elf_holds(elf, "libcuda.so.1") && cuplug_elf_holds(elf, "cuGetProcAddress");

    if (runtime)
        cuplug_doctor_say(CUPLUG_OK, "cudart", "shared (needs %s): intercepted at the runtime and at the driver", runtime);
    if (inside)
        cuplug_doctor_say(CUPLUG_OK, "cudart",
                          "static, it seems (the file looks the driver up itself): intercepted at the driver");
    if (driver)
        cuplug_doctor_say(CUPLUG_OK, "cudart", "the driver is linked (needs %s): intercepted at the driver", driver);
    if (!runtime && !inside && !driver)
        cuplug_doctor_say(CUPLUG_NOTE, "cudart",
                          "none in this file: what its libraries bring, linked or opened later, is intercepted all the same");
}

static void check_loading(const struct cuplug_elf *elf) {
    if (elf->rpath || elf->runpath)
        cuplug_doctor_say(CUPLUG_NOTE, "rpath", "%s: libraries are taken from there first",
                          elf->rpath ? elf->rpath : elf->runpath);
    else
        cuplug_doctor_say(CUPLUG_OK, "rpath", "none");
    if (cuplug_elf_has_symbol(elf, "dlopen", false) || cuplug_elf_has_symbol(elf, "dlmopen", false))
        cuplug_doctor_say(CUPLUG_NOTE, "deepbind",
                          "it opens libraries itself; whether with RTLD_DEEPBIND (or dlmopen), a file does not tell. What such a "
                          "library looks up bypasses every preload and stays the driver's; new memory then does, too (CUPLUG_DEEPBIND)");
    else
        cuplug_doctor_say(CUPLUG_OK, "deepbind", "the program opens no libraries itself");
}

static void check_file(const char *path, const struct cuplug_elf *elf) {
    if (elf->kind == CUPLUG_ELF_NONE) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s is neither a program nor a script", path);
    } else if (elf->kind == CUPLUG_ELF_32) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s is a 32-bit program: the loader says that it ignores the preload", path);
    } else if (elf->kind == CUPLUG_ELF_FOREIGN) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s is built for another processor", path);
    } else if (!elf->interpreter) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s is linked statically: there is no loader, so no preload", path);
    } else if (strstr(elf->interpreter, "ld-musl")) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s uses musl (%s): cuplug and NVIDIA's driver need glibc", path,
                          elf->interpreter);
    } else {
        cuplug_doctor_say(CUPLUG_OK, "program", "%s, dynamic, loader %s", path, elf->interpreter);
        check_privileges(path);
        check_cudart(elf);
        check_loading(elf);
        check_sanitizer(elf);
    }
}

void cuplug_doctor_program(const char *name) {
    char path[PATH_MAX], interpreter[256];
    struct cuplug_elf elf;

    for (int depth = 0; depth < 4; depth++) {
        if (!find_program(name, path, sizeof path)) {
            cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s: not found", name);
            return;
        }
        if (!cuplug_elf_open(&elf, path)) {
            cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s: %s", path, strerror(errno));
            return;
        }
        if (!interpreter_of(&elf, interpreter, sizeof interpreter)) {
            check_file(path, &elf);
            cuplug_elf_close(&elf);
            return;
        }
        cuplug_doctor_say(CUPLUG_OK, "script", "%s, run by %s", path, interpreter);
        cuplug_elf_close(&elf);
        name = interpreter;
    }
    cuplug_doctor_say(CUPLUG_PROBLEM, "program", "%s: scripts all the way down", path);
}
