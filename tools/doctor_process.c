/*
 * doctor_process.c: why a running process shows no interceptions: whether cuplug, the driver and a runtime are mapped, and from
 * where. Reads /proc/PID/maps; disturbs nothing.
 */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kind {
    const char *topic, *name; /* the file's name starts so */
    const char *absent;
    enum cuplug_finding finding; /* when it is absent */
} kinds[] = {
    {"shim", "libcuplug",
     "not loaded: it was not in LD_PRELOAD, or the loader ignored it (setuid, static, 32-bit, another C library)",
     CUPLUG_PROBLEM},
    {"driver", "libcuda.so", "not loaded: the process has made no CUDA call yet, so there is nothing to intercept", CUPLUG_NOTE},
    {"cudart", "libcudart.so", "no shared runtime: static ones inside programs and libraries are intercepted at the driver",
     CUPLUG_NOTE},
};

static bool starts(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');

    return strncmp(slash ? slash + 1 : path, name, strlen(name)) == 0;
}

/* One line for each file of that kind; a file has several mappings, which follow each other. */
static bool report(FILE *maps, const struct kind *kind) {
    char *line = NULL, last[4096] = "";
    size_t room = 0;
    bool found = false;

    rewind(maps);
    while (getline(&line, &room, maps) > 0) {
        char *path = strchr(line, '/');

        if (!path)
            continue;
        path[strcspn(path, "\n")] = 0;
        if (!starts(path, kind->name) || strcmp(path, last) == 0)
            continue;
        snprintf(last, sizeof last, "%s", path);
        cuplug_doctor_say(CUPLUG_OK, kind->topic, "%s", path);
        found = true;
    }
    free(line);
    return found;
}

void cuplug_doctor_process(const char *pid) {
    char name[64];
    FILE *maps;

    snprintf(name, sizeof name, "/proc/%.20s/maps", pid);
    maps = fopen(name, "re");
    if (!maps) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "process", "%s: %s", pid, errno == ENOENT ? "no such process" : strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!report(maps, &kinds[i]))
            cuplug_doctor_say(kinds[i].finding, kinds[i].topic, "%s", kinds[i].absent);
    cuplug_doctor_say(CUPLUG_NOTE, "routes",
                      "hooked where cuplug is loaded: linked calls, dlsym, cuGetProcAddress, cudaGetDriverEntryPoint; not: "
                      "libraries opened with RTLD_DEEPBIND or dlmopen");
    fclose(maps);
}
