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

void cuplug_backend_names(char *text, size_t room) {
    *text = 0;
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++)
        add(text, room, row->name);
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
    case CUPLUG_TYPE_SPEC:
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
    case CUPLUG_TYPE_SIZE:
    case CUPLUG_TYPE_AMOUNT:
        describe_range(option, text, room);
        break;
    }
}
