/*
 * options.c: reads options.def's options from the environment and hands the lines of the configuration file (file.c) to the same
 * functions. Owns cuplug_options and the backends' option structs, written once under the init lock before anything reads them.
 * Strings are copied into pages of our own, as the program may change its environment. Must not use malloc: any process may be at
 * its first CUDA look-up here.
 */
#include "options.h"

#include "reader.h"
#include "table.h"
#include "template.h"

#include "shim/log.h"
#include "shim/pages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for what is wrong with a value, and for what would be right. */
enum { WHAT = 360, RIGHT = 240 };

enum {
    OPTIONS = 0
#define OPTION(...) +1
#define SUBOPTION(...) +1
#include "options.def"
};

struct cuplug_options cuplug_options;
#define BACKEND(name, help) struct cuplug_##name##_options cuplug_##name##_options;
#include "options.def"

static struct cuplug_origin origins[OPTIONS];
static bool checking; /* the reader will not go on if something is refused */
static bool valid = true;

static struct cuplug_origin *origin_of(const struct cuplug_option *option) {
    return &origins[option - cuplug_option_table];
}

static const char *keep(const char *text, size_t length) {
    char *copy = cuplug_pages_map(length + 1);

    if (copy)
        memcpy(copy, text, length);
    return copy;
}

static bool wrong(char what[WHAT], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(char what[WHAT], const char *format, ...) {
    va_list list;

    va_start(list, format);
    vsnprintf(what, WHAT, format, list);
    va_end(list);
    return false;
}

/* Why messages cannot be appended to that file, NULL if they can. Creates nothing: there may never be a message. */
static const char *not_writable(const char *path) {
    const char *slash = strrchr(path, '/');
    char folder[1024] = ".";
    struct stat status;

    if (lstat(path, &status) == 0) {
        if (S_ISDIR(status.st_mode))
            return "is a directory";
        if (S_ISLNK(status.st_mode))
            return "is a symbolic link, which is not followed";
        if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
            return "is not a file";
        return access(path, W_OK) == 0 ? NULL : strerror(errno);
    }
    if (errno != ENOENT || (slash && !slash[1]))
        return strerror(errno);
    if (slash && snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path) >= (int)sizeof folder)
        return strerror(ENAMETOOLONG);
    return access(folder, W_OK | X_OK) == 0 ? NULL : strerror(errno);
}

/* The same for a file that is yet to be made, from a template: its folder may be, too. */
static const char *not_a_file(const char *path) {
    struct stat status;

    if (path[strlen(path) - 1] == '/' || (stat(path, &status) == 0 && S_ISDIR(status.st_mode)))
        return "is a directory";
    return NULL;
}

static bool set_file(const struct cuplug_option *option, const char *text, size_t length, char what[WHAT]) {
    const char *copy, *problem = NULL;

    if (!length)
        return wrong(what, "empty (a file name)");
    copy = keep(text, length);
    if (!copy)
        return wrong(what, "no memory");
    if (option->type == CUPLUG_TYPE_TEMPLATE && !cuplug_template_check(copy, what, WHAT))
        return false;
    if (option->type != CUPLUG_TYPE_INPUT_FILE)
        problem = option->type == CUPLUG_TYPE_TEMPLATE ? not_a_file(copy) : not_writable(copy);
    if (problem)
        return wrong(what, "%s (a file that can be written)", problem);
    *(const char **)option->value = copy;
    return true;
}

static bool set_scalar(const struct cuplug_option *option, const char *text, size_t length, char what[WHAT]) {
    const char *problem = NULL;
    char right[RIGHT];

    switch (option->type) {
    case CUPLUG_TYPE_WORD:
        problem = cuplug_value_word(text, length);
        if (!problem && !(*(const char **)option->value = keep(text, length)))
            problem = "no memory";
        break;
    case CUPLUG_TYPE_BOOL:
        problem = cuplug_value_bool(text, length, option->value);
        break;
    case CUPLUG_TYPE_CHOICE:
        problem = cuplug_value_choice(option->values, text, length, option->value);
        break;
    case CUPLUG_TYPE_SIZE:
    case CUPLUG_TYPE_SECONDS:
        problem = cuplug_value_size(option->values, text, length, option->value);
        break;
    default:
        problem = cuplug_value_amount(option->values, text, length, option->value);
        break;
    }
    if (!problem)
        return true;
    cuplug_option_describe(option, right, sizeof right);
    return wrong(what, "%s (%s)", problem, right);
}

static void set_default(const struct cuplug_option *option) {
    char what[WHAT];

    if (option->type <= CUPLUG_TYPE_SPECS)
        *(const char **)option->value = option->standard;
    else
        set_scalar(option, option->standard, strlen(option->standard), what);
    *origin_of(option) = (struct cuplug_origin){.line = -1};
}

static void default_suboptions(const char *backend) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (option->backend && strcmp(option->backend, backend) == 0)
            set_default(option);
}

/* One "key=value" of a backend. */
static bool set_suboption(const char *backend, const char *text, size_t length, char what[WHAT]) {
    const char *equals = memchr(text, '=', length);
    size_t key = equals ? (size_t)(equals - text) : length;
    const struct cuplug_option *option = cuplug_option_find(backend, text, key);
    char inner[WHAT] = "", right[RIGHT];

    if (!option) {
        cuplug_suboption_names(backend, right, sizeof right);
        return wrong(what, "%.*s: no such option of %s (%s)", (int)(length < 60 ? length : 60), text, backend,
                     *right ? right : "it has none");
    }
    if (!equals) {
        cuplug_option_describe(option, right, sizeof right);
        return wrong(what, "%s: no value (%s)", option->key, right);
    }
    if (set_scalar(option, equals + 1, length - key - 1, inner))
        return true;
    return wrong(what, "%.*s: %.*s", (int)(length < 60 ? length : 60), text, WHAT - 80, inner);
}

/* "key=value,key=value". Whatever it does not name has its default, and everything has if something is refused. */
static bool set_suboptions(const char *backend, const char *text, size_t length, char what[WHAT]) {
    const char *end = text + length;

    default_suboptions(backend);
    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t size = (size_t)((comma ? comma : end) - text);

        if (!set_suboption(backend, text, size, what)) {
            default_suboptions(backend);
            return false;
        }
        if (!comma)
            return true;
        text = comma + 1;
    }
}

/* A library, whose options are `given` (NULL: none). */
static bool set_library(const char *path, size_t size, const char *given, size_t length, char what[WHAT]) {
    if (memchr(path, 0, size) || size > 4095)
        return wrong(what, "no such path (the path of a library)");
    default_suboptions("plugin");
    if (given && cuplug_suboptions_known("plugin", given, length) && !set_suboptions("plugin", given, length, what))
        return false; /* what is not known may be the library's own */
    if (!cuplug_plugin_options.alloc == !cuplug_plugin_options.release)
        return true;
    default_suboptions("plugin");
    return wrong(what, "alloc and free go together (alloc=f,free=g)");
}

/* The backend of name or name:options; NULL if there is none. */
static const struct cuplug_backend_row *backend_of(const char *text, size_t length, char what[WHAT]) {
    const char *given;
    size_t size;
    const struct cuplug_backend_row *row = cuplug_backend_of(text, length, &size, &given);
    char names[RIGHT];

    if (row)
        return row;
    cuplug_backend_names(names, sizeof names);
    wrong(what, "%s (%s)", length ? "no such backend" : "empty", names);
    return NULL;
}

/* Its options. */
static bool set_options_of(const struct cuplug_backend_row *row, const char *text, size_t length, char what[WHAT]) {
    const char *given;
    size_t size, rest;

    cuplug_backend_of(text, length, &size, &given);
    rest = given ? length - size - 1 : 0;
    if (strcmp(row->name, "plugin") == 0)
        return set_library(text, size, given, rest, what);
    if (given)
        return set_suboptions(row->name, given, rest, what);
    default_suboptions(row->name);
    return true;
}

static bool keep_value(const struct cuplug_option *option, const char *text, size_t length, char what[WHAT]) {
    const char *copy = keep(text, length);

    if (!copy)
        return wrong(what, "no memory");
    *(const char **)option->value = copy;
    return true;
}

/* With bad options the backend is still taken, with its defaults; `instead` then says so. */
static bool set_spec(const struct cuplug_option *option, const char *text, size_t length, char what[WHAT], char instead[40]) {
    const struct cuplug_backend_row *row;

    cuplug_value_trim(&text, &length);
    row = backend_of(text, length, what);
    if (!row)
        return false;
    if (!set_options_of(row, text, length, what)) {
        if (strcmp(row->name, "plugin") != 0) {
            *(const char **)option->value = row->name;
            snprintf(instead, 40, "%s with its defaults", row->name);
        }
        return false;
    }
    return keep_value(option, text, length, what);
}

static const struct cuplug_backend_row *chosen_row(void) {
    const char *given;
    size_t size;

    return cuplug_backend_of(cuplug_options.backend, strlen(cuplug_options.backend), &size, &given);
}

/* Each backend once, as it has one set of options, and not the one that they stand in for. All of them are looked at before any gets its options. */
static bool set_specs(const struct cuplug_option *option, const char *text, size_t length, char what[WHAT]) {
    const char *end = text + length, *from = text, *spec;
    const struct cuplug_backend_row *row, *seen[16] = {chosen_row()};
    size_t size, count = 1;
    char inner[WHAT] = "";

    for (; (size = cuplug_backend_next(&from, end, &spec)) && count < sizeof seen / sizeof *seen; seen[count++] = row) {
        row = backend_of(spec, size, inner);
        if (!row)
            return wrong(what, "%.*s: %.*s", (int)(size < 60 ? size : 60), spec, WHAT - 80, inner);
        for (size_t i = 0; i < count; i++)
            if (seen[i] == row)
                return wrong(what, "%s%s (another one than %s)", strcmp(row->name, "plugin") == 0 ? "a library" : row->name,
                             i ? " stands there twice" : " is the backend itself", i ? "before" : "CUPLUG_BACKEND");
    }
    if (count == 1) {
        cuplug_option_describe(option, inner, sizeof inner);
        return wrong(what, "empty (%.*s)", WHAT - 20, inner);
    }
    for (from = text; (size = cuplug_backend_next(&from, end, &spec));)
        if (!set_options_of(backend_of(spec, size, inner), spec, size, inner))
            return wrong(what, "%.*s: %.*s", (int)(size < 60 ? size : 60), spec, WHAT - 80, inner);
    return keep_value(option, text, length, what);
}

void cuplug_reader_refuse(const char *where, const char *value, size_t length, const char *what, const char *instead) {
    const int most = 160; /* of a value, so that the line still ends with what would be right */
    bool cut = length > (size_t)most;
    const char *next = instead ? "; using " : "; ignored";

    if (checking || cuplug_options.strict) {
        next = checking ? "" : "; allocations will fail";
        instead = NULL;
    }
    valid = false;
    cuplug_log(CUPLUG_LOG_ERROR, "%s%.*s%s: %s%s%s", where, cut ? most : (int)length, value, cut ? "..." : "", what, next,
               instead ? instead : "");
}

void cuplug_reader_assign(const struct cuplug_option *option, const char *where, const char *text, size_t length,
                          const char *file, int line) {
    char what[WHAT] = "", instead[40] = "";
    bool fine;

    set_default(option);
    *origin_of(option) = (struct cuplug_origin){file, line, false};
    if (option->type == CUPLUG_TYPE_SPEC)
        fine = set_spec(option, text, length, what, instead);
    else if (option->type == CUPLUG_TYPE_SPECS)
        fine = set_specs(option, text, length, what);
    else if (option->type < CUPLUG_TYPE_SPEC)
        fine = set_file(option, text, length, what);
    else
        fine = set_scalar(option, text, length, what);
    if (!fine) {
        origin_of(option)->refused = true;
        cuplug_reader_refuse(where, text, length, what, *instead ? instead : option->standard);
    }
}

static void read_variable(const struct cuplug_option *option) {
    const char *text = getenv(option->variable);
    char where[64];

    if (!text)
        return;
    snprintf(where, sizeof where, "%s=", option->variable);
    cuplug_reader_assign(option, where, text, strlen(text), NULL, 0);
}

static bool read_by_others(const char *name) {
    static const char *const others[] = {
#define OTHER(variable) variable,
#include "options.def"
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t length = strlen(others[i]);

        if (strncmp(name, others[i], others[i][length - 1] == '_' ? length : length + 1) == 0)
            return true;
    }
    return false;
}

/* A misspelt variable would otherwise do nothing, silently. */
static void warn_of_unknown(void) {
    for (char **entry = environ; entry && *entry; entry++) {
        char name[80];

        if (strncmp(*entry, "CUPLUG_", 7) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (cuplug_option_find_variable(name) || read_by_others(name))
            continue;
        valid &= !cuplug_options.strict;
        cuplug_log(cuplug_options.strict ? CUPLUG_LOG_ERROR : CUPLUG_LOG_WARN, "%s: no such option (did you mean %s?)%s", name,
                   cuplug_option_nearest(name)->variable, checking || !cuplug_options.strict ? "" : "; allocations will fail");
    }
}

void cuplug_options_read(void) {
    int saved = errno;

    valid = true;
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        set_default(option);
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (option->variable)
            read_variable(option);
    if (cuplug_options.config)
        cuplug_reader_file(cuplug_options.config);
    warn_of_unknown();
    errno = saved;
}

bool cuplug_options_check(void) {
    checking = true;
    cuplug_options_read();
    checking = false;
    return valid;
}

bool cuplug_options_valid(void) {
    return valid;
}

struct cuplug_origin cuplug_option_origin(const struct cuplug_option *option) {
    return *origin_of(option);
}
