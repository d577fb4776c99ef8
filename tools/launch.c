/*
 * launch.c: see launch.h. Changes this process's environment, nothing else.
 */
#include "launch.h"

#include "config/table.h"
#include "shim/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char library_name[] = "libcuplug.so";

/* The option that "--log-file" or "--log-file=…" is about. */
static const struct cuplug_option *find_flag(const char *flag, const char **value) {
    char key[40];
    size_t length = strcspn(flag, "=");

    *value = flag[length] ? flag + length + 1 : NULL;
    if (length < 3 || length - 2 >= sizeof key)
        return NULL;
    for (size_t i = 0; i < length - 2; i++)
        key[i] = flag[i + 2] == '-' ? '_' : flag[i + 2];
    return cuplug_option_find(NULL, key, length - 2);
}

static void say_unknown(const char *who, const char *flag) {
    const struct cuplug_option *nearest;
    char word[40], known[40];
    size_t i;

    for (i = 0; flag[i] && flag[i] != '=' && i < sizeof word - 1; i++)
        word[i] = flag[i] == '-' ? '_' : flag[i];
    word[i] = 0;
    nearest = cuplug_option_nearest(word + strspn(word, "_"));
    snprintf(known, sizeof known, "--%s", nearest->key);
    for (char *c = known; *c; c++)
        *c = *c == '_' ? '-' : *c;
    cuplug_log(CUPLUG_LOG_ERROR, "%s: %s: no such flag (did you mean %s? `cuplug %s --help` lists them)", who, flag, known, who);
}

int cuplug_launch_flags(int argc, char **argv) {
    int i;

    for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        const struct cuplug_option *option;
        const char *value = NULL;

        if (strcmp(argv[i], "--") == 0)
            return i + 1;
        if (strcmp(argv[i], "-b") == 0)
            option = cuplug_option_find(NULL, "backend", strlen("backend"));
        else
            option = find_flag(argv[i], &value);
        if (!option) {
            say_unknown(argv[0], argv[i]);
            return -1;
        }
        if (!value && option->type == CUPLUG_TYPE_BOOL)
            value = "1";
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value) {
            char right[240];

            cuplug_option_describe(option, right, sizeof right);
            cuplug_log(CUPLUG_LOG_ERROR, "%s: %s: no value (%s)", argv[0], argv[i], right);
            return -1;
        }
        setenv(option->variable, value, 1);
    }
    return i;
}

bool cuplug_same_file(const char *one, const char *other) {
    struct stat a, b;

    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool take(const char *candidate, char *path, size_t room) {
    char *real = realpath(candidate, NULL);
    bool fits = real && access(real, R_OK) == 0 && strlen(real) < room;

    if (fits)
        strcpy(path, real);
    free(real);
    return fits;
}

bool cuplug_launch_find(char *path, size_t room) {
    static const char *const places[] = {"", "../lib/cuplug/", "../lib/"};
    const char *named = getenv("CUPLUG_LIBRARY");
    char own[PATH_MAX], candidate[PATH_MAX + 40];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);

    if (named && *named)
        return take(named, path, room);
    while (length > 0 && own[length - 1] != '/')
        length--;
    if (length <= 0)
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)length, own, places[i], library_name);
        if (take(candidate, path, room))
            return true;
    }
    return false;
}

bool cuplug_launch_library(const char *who, char *path, size_t room) {
    const char *named = getenv("CUPLUG_LIBRARY");

    if (!cuplug_launch_find(path, room)) {
        if (named && *named)
            cuplug_log(CUPLUG_LOG_ERROR, "%s: CUPLUG_LIBRARY=%s: %s (the path of %s)", who, named, strerror(errno), library_name);
        else
            cuplug_log(CUPLUG_LOG_ERROR,
                       "%s: no %s beside this command, in ../lib/cuplug or in ../lib (CUPLUG_LIBRARY can name it)", who,
                       library_name);
        return false;
    }
    if (strpbrk(path, " :")) {
        cuplug_log(CUPLUG_LOG_ERROR,
                   "%s: %s: the loader splits LD_PRELOAD at blanks and colons (CUPLUG_LIBRARY can name a link without them)", who,
                   path);
        return false;
    }
    return true;
}

static bool contains(const char *list, const char *library) {
    bool found = false;
    char *copy = strdup(list);

    for (char *rest = NULL, *entry = copy ? strtok_r(copy, " :", &rest) : NULL; entry && !found;
         entry = strtok_r(NULL, " :", &rest))
        found = cuplug_same_file(entry, library);
    free(copy);
    return found;
}

bool cuplug_launch_preload(const char *who) {
    const char *before = getenv("LD_PRELOAD");
    char library[PATH_MAX], *value;

    if (!cuplug_launch_library(who, library, sizeof library))
        return false;
    if (before && contains(before, library))
        return true;
    if (asprintf(&value, "%s%s%s", before ? before : "", before && *before ? ":" : "", library) < 0 ||
        setenv("LD_PRELOAD", value, 1) != 0) {
        cuplug_log(CUPLUG_LOG_ERROR, "%s: %s", who, strerror(ENOMEM));
        return false;
    }
    free(value);
    return true;
}
