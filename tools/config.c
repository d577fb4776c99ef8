/*
 * config.c: `cuplug config`: the options in force, read exactly as the library would read them, in the form of a configuration
 * file.
 */
#include "command.h"
#include "show.h"

#include "config/options.h"
#include "shim/log.h"

#include <stdio.h>
#include <string.h>

static void print_origin(const struct cuplug_option *option) {
    struct cuplug_origin origin = cuplug_option_origin(option);

    printf("# %s", origin.refused ? "default, instead of " : "");
    if (origin.line < 0)
        printf("default\n");
    else if (origin.line == 0)
        printf("environment %s\n", option->variable);
    else
        printf("%s:%d\n", origin.file, origin.line);
}

static bool is(const char *spec, size_t length, const char *name) {
    const char *given;
    size_t size;
    const struct cuplug_backend_row *row = cuplug_backend_of(spec, length, &size, &given);

    return row && strcmp(row->name, name) == 0;
}

/* Does this backend serve, or stand in for the one that does? */
static bool in_use(const char *name) {
    const char *fallback = cuplug_options.fallback ? cuplug_options.fallback : "", *end = fallback + strlen(fallback), *spec;
    bool found = is(cuplug_options.backend, strlen(cuplug_options.backend), name);
    size_t size;

    while (!found && (size = cuplug_backend_next(&fallback, end, &spec)))
        found = is(spec, size, name);
    return found;
}

/* `config` itself cannot stand in a file, and what has no value has no line: both are comments. */
static void print_all(void) {
    char value[4096];

    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        cuplug_show_value(option, value, sizeof value);
        if (option->backend) {
            if (in_use(option->backend))
                printf("# %s:%s = %s\n", option->backend, option->key, value);
            continue;
        }
        printf("%s%-*s = %-20s ", *value && option->type != CUPLUG_TYPE_INPUT_FILE ? "" : "# ", 14, option->key,
               *value ? value : "(none)");
        print_origin(option);
    }
}

/* "log", "CUPLUG_LOG", "pool:reuse". */
static const struct cuplug_option *find(const char *key) {
    const char *colon = strchr(key, ':');
    char backend[32];

    if (!colon)
        return strncmp(key, "CUPLUG_", 7) == 0 ? cuplug_option_find_variable(key) : cuplug_option_find(NULL, key, strlen(key));
    snprintf(backend, sizeof backend, "%.*s", (int)(colon - key), key);
    return cuplug_option_find(backend, colon + 1, strlen(colon + 1));
}

static int print_one(const char *key) {
    const struct cuplug_option *option = find(key);
    char value[4096];
    bool fine;

    if (!option) {
        cuplug_log(CUPLUG_LOG_ERROR, "config: %s: no such option (did you mean %s? `cuplug config` lists them)", key,
                   cuplug_option_nearest(key)->key);
        return CUPLUG_USAGE;
    }
    fine = cuplug_options_check();
    cuplug_show_value(option, value, sizeof value);
    printf("%s\n", value);
    return fine ? 0 : 1;
}

int cuplug_config(int argc, char **argv) {
    static const struct {
        const char *flag;
        void (*show)(void);
    } documents[] = {{"--table", cuplug_show_table}, {"--markdown", cuplug_show_markdown}, {"--man", cuplug_show_man}};
    bool fine;

    if (argc > 2) {
        cuplug_log(CUPLUG_LOG_ERROR, "config: %s: one KEY at most", argv[2]);
        return CUPLUG_USAGE;
    }
    for (size_t i = 0; argc == 2 && i < sizeof documents / sizeof *documents; i++)
        if (strcmp(argv[1], documents[i].flag) == 0) {
            documents[i].show();
            return 0;
        }
    if (argc == 2 && argv[1][0] == '-') {
        cuplug_log(CUPLUG_LOG_ERROR, "config: %s: no such flag (--table, --markdown, --man)", argv[1]);
        return CUPLUG_USAGE;
    }
    if (argc == 2)
        return print_one(argv[1]);
    fine = cuplug_options_check();
    print_all();
    return fine ? 0 : 1;
}
