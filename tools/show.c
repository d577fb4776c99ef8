/*
 * show.c: see show.h. Prints to stdout; what it prints depends on options.def alone, so that a test can compare it with the files
 * that quote it.
 */
#include "show.h"

#include "config/template.h"
#include "config/value.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[] = {
    [CUPLUG_TYPE_INPUT_FILE] = "input-file",
    [CUPLUG_TYPE_OUTPUT_FILE] = "output-file",
    [CUPLUG_TYPE_TEMPLATE] = "template",
    [CUPLUG_TYPE_WORD] = "word",
    [CUPLUG_TYPE_SPEC] = "backend",
    [CUPLUG_TYPE_SPECS] = "backends",
    [CUPLUG_TYPE_BOOL] = "boolean",
    [CUPLUG_TYPE_CHOICE] = "choice",
    [CUPLUG_TYPE_SIZE] = "size",
    [CUPLUG_TYPE_SECONDS] = "seconds",
    [CUPLUG_TYPE_AMOUNT] = "amount",
};

static void show_size(uint64_t bytes, char *text, size_t room) {
    static const char units[] = "KMGT";
    int unit = -1;

    while (bytes && unit < 3 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, room, "%" PRIu64 "%.1s", bytes, unit < 0 ? "" : units + unit);
}

void cuplug_show_value(const struct cuplug_option *option, char *text, size_t room) {
    const char *word = option->values;

    switch (option->type) {
    case CUPLUG_TYPE_BOOL:
        snprintf(text, room, "%d", *(const bool *)option->value);
        break;
    case CUPLUG_TYPE_CHOICE:
        for (int i = *(const int *)option->value; i > 0; i--)
            word += strcspn(word, "|") + 1;
        snprintf(text, room, "%.*s", (int)strcspn(word, "|"), word);
        break;
    case CUPLUG_TYPE_SIZE:
        show_size(*(const uint64_t *)option->value, text, room);
        break;
    case CUPLUG_TYPE_SECONDS:
        snprintf(text, room, "%" PRIu64, *(const uint64_t *)option->value);
        break;
    case CUPLUG_TYPE_AMOUNT: {
        const struct cuplug_amount *amount = option->value;

        if (amount->percent)
            snprintf(text, room, "%" PRIu64 "%%", amount->value);
        else
            show_size(amount->value, text, room);
        break;
    }
    default:
        snprintf(text, room, "%s", *(const char *const *)option->value ? *(const char *const *)option->value : "");
    }
}

void cuplug_show_table(void) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        char values[240];

        cuplug_option_describe(option, values, sizeof values);
        printf("%s%s%s\t%s\t%s\t%s\t%s\n", option->backend ? option->backend : "", option->backend ? ":" : "",
               option->backend ? option->key : option->variable, type_names[option->type],
               option->standard ? option->standard : "", values, option->help);
    }
}

/* A template's directives are documented by themselves, so its column only says "a file name template". */
static void describe_short(const struct cuplug_option *option, char *text, size_t room) {
    if (option->type == CUPLUG_TYPE_BOOL)
        snprintf(text, room, "boolean");
    else if (option->type == CUPLUG_TYPE_TEMPLATE)
        snprintf(text, room, "a file name template");
    else if (option->type == CUPLUG_TYPE_SPEC)
        snprintf(text, room, "a backend");
    else if (option->type == CUPLUG_TYPE_SPECS)
        snprintf(text, room, "backends");
    else
        cuplug_option_describe(option, text, room);
}

static void markdown_rows(const char *backend) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        char values[240];

        if (backend ? !option->backend || strcmp(option->backend, backend) != 0 : option->backend != NULL)
            continue;
        describe_short(option, values, sizeof values);
        printf("| `%s%s%s` | %s | %s%s%s | %s |\n", backend ? backend : "", backend ? ":" : "",
               backend ? option->key : option->variable, values, option->standard ? "`" : "",
               option->standard ? option->standard : "none", option->standard ? "`" : "", option->help);
    }
}

void cuplug_show_markdown(void) {
    puts("| variable | values | default | meaning |\n| --- | --- | --- | --- |");
    markdown_rows(NULL);
    puts("\n| backend | device memory comes from |\n| --- | --- |");
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++)
        printf("| `%s` | %s |\n", row->name, row->help);
    puts("\n| backend's option | values | default | meaning |\n| --- | --- | --- | --- |");
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++)
        markdown_rows(row->name);
    puts("\n| in a file name template | becomes |\n| --- | --- |");
    for (const struct cuplug_directive *directive = cuplug_directive_table; directive->text; directive++) {
        printf("| `%s` | %s", directive->text, directive->help);
        for (const char *name = directive->variables; name && *name;) {
            size_t length = strcspn(name, " ");

            printf("%s`%.*s`", name == directive->variables ? ": the first that is set of " : ", ", (int)length, name);
            name += length + (name[length] == ' ');
        }
        puts(" |");
    }
}

/* roff takes '\' and a leading '.' or ''' for its own; '-' would become a hyphen that cannot be searched for. */
static void roff(const char *text) {
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
    }
}

static void man_option(const struct cuplug_option *option) {
    char values[240];

    describe_short(option, values, sizeof values);
    printf(".TP\n.B ");
    roff(option->backend ? option->key : option->variable);
    printf("\n");
    roff(option->help);
    printf(".\nValues: ");
    roff(values);
    printf(". Default: ");
    roff(option->standard ? option->standard : "none");
    printf(".\n");
}

void cuplug_show_man(void) {
    puts(".SH ENVIRONMENT");
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (!option->backend)
            man_option(option);
    puts(".SH BACKENDS");
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++) {
        printf(".SS %s\n", row->name);
        roff(row->help);
        puts(".");
        for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
            if (option->backend && strcmp(option->backend, row->name) == 0)
                man_option(option);
    }
    puts(".SH FILE NAME TEMPLATES");
    for (const struct cuplug_directive *directive = cuplug_directive_table; directive->text; directive++) {
        printf(".TP\n.B ");
        roff(directive->text);
        printf("\n");
        roff(directive->help);
        if (directive->variables)
            printf(": the first that is set of %s", directive->variables);
        puts(".");
    }
}
