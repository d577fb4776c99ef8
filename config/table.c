/*
 * table.c: see table.h. Constant; owns the option structs only in that the rows point at them.
 */
#include "table.h"

#include "options.h"
#include "template.h"

#include <stdio.h>
#include <string.h>

const struct cuplug_option cuplug_option_table[] = {
#define OPTION(field, variable, type, standard, values, help)                                                                    \
    {NULL, variable, #field, CUPLUG_TYPE_##type, standard, values, help, &cuplug_options.field},
#define SUBOPTION(backend, field, key, type, standard, values, help)                                                             \
    {#backend, NULL, key, CUPLUG_TYPE_##type, standard, values, help, &cuplug_##backend##_options.field},
#include "options.def"
    {0},
};

const struct cuplug_backend_row cuplug_backend_table[] = {
#define BACKEND(name, help) {#name, help},
#include "options.def"
    {0},
};

static void add(char *text, size_t room, const char *word) {
    size_t length = strlen(text);

    snprintf(text + length, room - length, "%s%s", length ? ", " : "", word);
}

static bool same(const char *word, const char *text, size_t length) {
    return strlen(word) == length && memcmp(word, text, length) == 0;
}

const struct cuplug_option *cuplug_option_find(const char *backend, const char *key, size_t length) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (same(option->key, key, length) &&
            (backend ? option->backend && strcmp(option->backend, backend) == 0 : !option->backend))
            return option;
    return NULL;
}

const struct cuplug_option *cuplug_option_find_variable(const char *variable) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (option->variable && strcmp(option->variable, variable) == 0)
            return option;
    return NULL;
}

const struct cuplug_option *cuplug_option_nearest(const char *word) {
    bool variable = strncmp(word, "CUPLUG_", 7) == 0;
    const struct cuplug_option *nearest = NULL;
    int least = 1000;

    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        int distance = option->backend ? least : cuplug_value_distance(word, variable ? option->variable : option->key);

        if (distance < least) {
            least = distance;
            nearest = option;
        }
    }
    return nearest;
}

const struct cuplug_backend_row *cuplug_backend_find(const char *name, size_t length) {
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++)
        if (same(row->name, name, length))
            return row;
    return NULL;
}

static bool is_library(const char *name, size_t length) {
    return memchr(name, '/', length) || (length > 3 && memcmp(name + length - 3, ".so", 3) == 0);
}

/* Where the path of a library ends: behind the last ".so" (with a version, perhaps) that a ':' or nothing follows, so that a path may hold colons; else
 * at the end. */
static size_t path_length(const char *spec, size_t length) {
    size_t end = length;

    for (size_t i = 0; i + 3 <= length; i++) {
        size_t version = i + 3;

        if (memcmp(spec + i, ".so", 3) != 0)
            continue;
        while (version < length && strchr(".0123456789", spec[version]))
            version++;
        if (version == length || spec[version] == ':')
            end = version;
    }
    return end;
}

const struct cuplug_backend_row *cuplug_backend_of(const char *spec, size_t length, size_t *name, const char **options) {
    const char *colon = memchr(spec, ':', length);

    *name = path_length(spec, length);
    if (!is_library(spec, *name) || (colon && cuplug_backend_find(spec, (size_t)(colon - spec))))
        *name = colon ? (size_t)(colon - spec) : length;
    *options = *name < length ? spec + *name + 1 : NULL;
    if (is_library(spec, *name))
        return cuplug_backend_find("plugin", 6);
    return same("plugin", spec, *name) ? NULL : cuplug_backend_find(spec, *name);
}

size_t cuplug_backend_next(const char **text, const char *end, const char **spec) {
    const char *from = *text;

    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    *spec = from;
    while (from < end && *from != ' ' && *from != '\t')
        from++;
    *text = from;
    return (size_t)(from - *spec);
}

void cuplug_backend_names(char *text, size_t room) {
    *text = 0;
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++)
        add(text, room, strcmp(row->name, "plugin") == 0 ? "or the path of a .so" : row->name);
}

bool cuplug_suboptions_known(const char *backend, const char *text, size_t length) {
    const char *end = text + length;

    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t size = (size_t)((comma ? comma : end) - text);
        const char *equals = memchr(text, '=', size);

        if (!cuplug_option_find(backend, text, equals ? (size_t)(equals - text) : size))
            return false;
        if (!comma)
            return true;
        text = comma + 1;
    }
}

void cuplug_suboption_names(const char *backend, char *text, size_t room) {
    *text = 0;
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (option->backend && strcmp(option->backend, backend) == 0)
            add(text, room, option->key);
}

static void describe_range(const struct cuplug_option *option, char *text, size_t room) {
    const char *dots = option->values ? strstr(option->values, "..") : NULL;

    snprintf(text, room, "a size such as 512M or 8G");
    if (dots) {
        size_t length = strlen(text);

        snprintf(text + length, room - length, "%s%.*s%s%s", dots[2] ? ", " : ", at least ", (int)(dots - option->values),
                 option->values, dots[2] ? " to " : "", dots + 2);
    }
    if (option->type == CUPLUG_TYPE_AMOUNT)
        add(text, room, "or 1% to 100%");
}

void cuplug_option_describe(const struct cuplug_option *option, char *text, size_t room) {
    switch (option->type) {
    case CUPLUG_TYPE_INPUT_FILE:
    case CUPLUG_TYPE_OUTPUT_FILE:
        snprintf(text, room, "a file name");
        break;
    case CUPLUG_TYPE_TEMPLATE:
        snprintf(text, room, "a file name; ");
        cuplug_template_directives(text + strlen(text), room - strlen(text));
        break;
    case CUPLUG_TYPE_WORD:
        snprintf(text, room, "the name of a function");
        break;
    case CUPLUG_TYPE_SPEC:
    case CUPLUG_TYPE_SPECS:
        cuplug_backend_names(text, room);
        break;
    case CUPLUG_TYPE_BOOL:
        snprintf(text, room, "1, 0, yes, no, on, off, true, false");
        break;
    case CUPLUG_TYPE_CHOICE:
        *text = 0;
        for (const char *word = option->values; *word;) {
            char copy[32];
            size_t length = strcspn(word, "|");

            snprintf(copy, sizeof copy, "%.*s", (int)length, word);
            add(text, room, copy);
            word += length + (word[length] == '|');
        }
        break;
    case CUPLUG_TYPE_SECONDS:
        snprintf(text, room, "seconds");
        break;
    case CUPLUG_TYPE_SIZE:
    case CUPLUG_TYPE_AMOUNT:
        describe_range(option, text, room);
        break;
    }
}
