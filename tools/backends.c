/*
 * backends.c: `cuplug backends`: the backends and their options, from options.def.
 */
#include "command.h"

#include "config/table.h"

#include <stdio.h>
#include <string.h>

int cuplug_backends(int argc, char **argv) {
    if (!cuplug_no_arguments(argc, argv))
        return CUPLUG_USAGE;
    for (const struct cuplug_backend_row *row = cuplug_backend_table; row->name; row++) {
        printf("%-8s %s\n", row->name, row->help);
        for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
            char values[240];

            if (!option->backend || strcmp(option->backend, row->name) != 0)
                continue;
            cuplug_option_describe(option, values, sizeof values);
            printf("         %s:%s=%s  %s (%s)\n", row->name, option->key, option->standard ? option->standard : "", option->help, values);
        }
    }
    return 0;
}
