/*
 * follow.c: takes this library out of LD_PRELOAD for the children of the process (CUPLUG_FOLLOW=0). No state. Compares names and
 * files, never by dlopen: that would leave an error for the program's next dlerror.
 */
#include "options.h"

#include "shim/pages.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char separators[] = " :"; /* as ld.so splits it */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Did the loader load this library, `own`, for that entry? Without a slash it was searched for, with a '$' it was expanded: then
 * the last part decides. `own_file` is NULL if the file is out of reach by now: a relative name after a chdir, another root. */
static bool is_own(const char *entry, const char *own, const struct stat *own_file) {
    struct stat file;

    if (strcmp(entry, own) == 0)
        return true;
    if (!strchr(entry, '/') || strchr(entry, '$'))
        return strcmp(last_part(entry), last_part(own)) == 0;
    return own_file && stat(entry, &file) == 0 && file.st_dev == own_file->st_dev && file.st_ino == own_file->st_ino;
}

/* Removes our entries from `list`, each with one separator beside it. True if there were any. `scratch` is as large as the list.
 */
static bool remove_own(char *list, char *scratch, const char *own, const struct stat *own_file) {
    bool found = false;

    for (char *entry = list; *entry;) {
        size_t length = strcspn(entry, separators);

        memcpy(scratch, entry, length);
        scratch[length] = 0;
        if (length && is_own(scratch, own, own_file)) {
            char *rest = entry + length;

            found = true;
            if (*rest)
                rest++;
            else if (entry > list)
                entry--;
            memmove(entry, rest, strlen(rest) + 1);
        } else {
            entry += length + (entry[length] != 0);
        }
    }
    return found;
}

void cuplug_options_unfollow(void) {
    const char *value = getenv("LD_PRELOAD");
    int saved = errno;
    struct stat own_file;
    Dl_info own;
    size_t size;
    char *copy;

    if (!value || !*value || !dladdr((void *)cuplug_options_unfollow, &own) || !own.dli_fname)
        return;
    size = strlen(value) + 1;
    copy = cuplug_pages_map(2 * size);
    if (copy) {
        memcpy(copy, value, size);
        if (remove_own(copy, copy + size, own.dli_fname, stat(own.dli_fname, &own_file) == 0 ? &own_file : NULL)) {
            if (*copy)
                setenv("LD_PRELOAD", copy, 1);
            else
                unsetenv("LD_PRELOAD");
        }
    }
    cuplug_pages_unmap(copy, 2 * size);
    errno = saved;
}
