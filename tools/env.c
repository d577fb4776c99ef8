/*
 * env.c: `cuplug env`: the environment that `run` would give a program, as lines that any POSIX shell can evaluate.
 */
#include "command.h"
#include "launch.h"

#include "config/options.h"
#include "config/table.h"
#include "shim/log.h"

#include <stdio.h>
#include <stdlib.h>

static void print_export(const char *variable) {
    const char *value = getenv(variable);

    if (!value)
        return;
    printf("export %s='", variable);
    for (; *value; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    puts("'");
}

int cuplug_env(int argc, char **argv) {
    int rest = cuplug_launch_flags(argc, argv);

    if (rest < 0)
        return CUPLUG_USAGE;
    if (rest < argc) {
        cuplug_log(CUPLUG_LOG_ERROR, "env: %s: takes flags only (`cuplug run` starts a program)", argv[rest]);
        return CUPLUG_USAGE;
    }
    if (!cuplug_options_check() || !cuplug_launch_preload(argv[0]))
        return 1;
    print_export("LD_PRELOAD");
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++)
        if (option->variable)
            print_export(option->variable);
    return 0;
}
