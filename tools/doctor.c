/*
 * doctor.c: `cuplug doctor`: the checks that concern the machine and this environment, and the order of the rest.
 */
#include "doctor.h"

#include "command.h"
#include "elf.h"
#include "launch.h"

#include "config/options.h"
#include "shim/log.h"

#include <gnu/libc-version.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static bool problems;

void cuplug_doctor_say(enum cuplug_finding finding, const char *topic, const char *format, ...) {
    static const char *const words[] = {"ok", "note", "problem"};
    va_list list;

    problems |= finding == CUPLUG_PROBLEM;
    printf("%-7s %s: ", words[finding], topic);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
}

static void check_library(void) {
    char path[PATH_MAX];
    struct cuplug_elf elf;

    if (!cuplug_launch_find(path, sizeof path)) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "library", "libcuplug.so not found (CUPLUG_LIBRARY can name it)");
        return;
    }
    if (!cuplug_elf_open(&elf, path) || elf.kind != CUPLUG_ELF_NATIVE)
        cuplug_doctor_say(CUPLUG_PROBLEM, "library", "%s is not a library for this machine", path);
    else if (strpbrk(path, " :"))
        cuplug_doctor_say(CUPLUG_PROBLEM, "library",
                          "%s: the loader splits LD_PRELOAD at blanks and colons; name a link by CUPLUG_LIBRARY", path);
    else
        cuplug_doctor_say(CUPLUG_OK, "library", "%s", path);
    cuplug_elf_close(&elf);
}

static void check_system(void) {
    struct utsname name = {0};

    uname(&name);
    cuplug_doctor_say(CUPLUG_OK, "system", "%s %s, glibc %s", name.sysname, name.machine, gnu_get_libc_version());
}

static void check_options(void) {
    if (cuplug_options_check())
        cuplug_doctor_say(CUPLUG_OK, "options", "all valid, backend %s%s%s", cuplug_options.backend, cuplug_options.fallback ? ", then " : "",
                          cuplug_options.fallback ? cuplug_options.fallback : "");
    else
        cuplug_doctor_say(CUPLUG_PROBLEM, "options", "some are refused (see the messages)");
    if (cuplug_options.disable)
        cuplug_doctor_say(CUPLUG_NOTE, "options", "CUPLUG_DISABLE is set: cuplug touches nothing");
}

static void check_entry(const char *entry, const char *library, bool first) {
    struct cuplug_elf elf;

    if (strstr(entry, "libasan") || strstr(entry, "libtsan")) {
        cuplug_doctor_say(first ? CUPLUG_OK : CUPLUG_PROBLEM, "preload", "%s (a sanitizer's runtime: must be the first entry%s)",
                          entry, first ? ", and is" : "");
        return;
    }
    if (*library && cuplug_same_file(entry, library)) {
        cuplug_doctor_say(CUPLUG_OK, "preload", "%s (cuplug)", entry);
        return;
    }
    if (!cuplug_elf_open(&elf, entry)) {
        cuplug_doctor_say(CUPLUG_NOTE, "preload", "%s: %s", entry,
                          strchr(entry, '/') ? "cannot be read" : "searched for by the loader");
        return;
    }
    if (cuplug_elf_has_symbol(&elf, "cuMemAlloc_v2", true) || cuplug_elf_has_symbol(&elf, "cudaMalloc", true) ||
        cuplug_elf_has_symbol(&elf, "dlsym", true))
        cuplug_doctor_say(CUPLUG_NOTE, "preload",
                          "%s intercepts CUDA or dlsym, too: of two such libraries the earlier one sees a call first", entry);
    else
        cuplug_doctor_say(CUPLUG_OK, "preload", "%s", entry);
    cuplug_elf_close(&elf);
}

static void check_list(const char *list, const char *library) {
    char *copy = strdup(list), *rest = NULL;
    bool first = true;

    for (char *entry = copy ? strtok_r(copy, " :\t\n", &rest) : NULL; entry; entry = strtok_r(NULL, " :\t\n", &rest)) {
        check_entry(entry, library, first);
        first = false;
    }
    free(copy);
}

static void check_preloads(void) {
    const char *preload = getenv("LD_PRELOAD");
    char library[PATH_MAX] = "", system_wide[4096] = "";
    FILE *file = fopen("/etc/ld.so.preload", "re");

    cuplug_launch_find(library, sizeof library);
    if (file) {
        system_wide[fread(system_wide, 1, sizeof system_wide - 1, file)] = 0;
        fclose(file);
    }
    if (!(preload && *preload) && !system_wide[strspn(system_wide, " \t\n")])
        cuplug_doctor_say(CUPLUG_OK, "preload", "no other library is preloaded");
    if (preload)
        check_list(preload, library);
    check_list(system_wide, library);
}

int cuplug_doctor(int argc, char **argv) {
    bool process = argc >= 2 && strcmp(argv[1], "--pid") == 0;

    problems = false;
    if (argc >= 2 && argv[1][0] == '-' && !process) {
        cuplug_log(CUPLUG_LOG_ERROR, "doctor: %s: no such flag (--pid PID)", argv[1]);
        return CUPLUG_USAGE;
    }
    if (process && (argc < 3 || !*argv[2] || argv[2][strspn(argv[2], "0123456789")])) {
        cuplug_log(CUPLUG_LOG_ERROR, "doctor: --pid %s: a process id, in digits, is wanted", argc < 3 ? "" : argv[2]);
        return CUPLUG_USAGE;
    }
    if (argc > (process ? 3 : 2)) {
        cuplug_log(CUPLUG_LOG_ERROR, "doctor: %s: one program at most", argv[process ? 3 : 2]);
        return CUPLUG_USAGE;
    }
    if (process) {
        cuplug_doctor_process(argv[2]);
        return problems;
    }
    check_system();
    check_library();
    check_options();
    check_preloads();
    cuplug_doctor_driver();
    if (argc == 2)
        cuplug_doctor_program(argv[1]);
    return problems;
}
