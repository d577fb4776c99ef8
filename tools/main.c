/*
 * main.c: the `cuplug` command: the table of its sub-commands, its own flags, and the help made from both.
 */
#include "command.h"

#include "config/table.h"
#include "config/value.h"
#include "shim/log.h"

#include <stdio.h>
#include <string.h>

static const struct cuplug_command commands[] = {
    {"run", "[-b BACKEND] [--OPTION[=VALUE]]... [--] PROGRAM [ARGUMENT]...",
     "run a program with its device memory served by cuplug",
     "The library is appended to LD_PRELOAD. Options are checked first; if one is refused, nothing is started.\n"
     "Status: the program's own; 125 cuplug itself failed, 126 the program cannot be executed, 127 it was not found.\n",
     cuplug_run},
    {"env", "[-b BACKEND] [--OPTION[=VALUE]]...", "print what `run` would set, for a shell: eval \"$(cuplug env -b pool)\"", "",
     cuplug_env},
    {"backends", "", "list the backends and their options", "", cuplug_backends},
    {"config", "[KEY | --table | --markdown | --man]", "show the options in force and where each comes from",
     "The output is a valid configuration file. With KEY (log, CUPLUG_LOG, pool:reuse) only that value is printed.\n"
     "--table, --markdown and --man document all options: tab-separated, as README's tables, as the man page's sections.\n",
     cuplug_config},
    {"doctor", "[PROGRAM | --pid PID]", "say whether cuplug can work here, and in front of that program or in that process",
     "Each line starts with ok, note or problem. Status 1 if there is a problem.\n", cuplug_doctor},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_flags(void) {
    printf("\nOptions (the environment's CUPLUG_... variables and --config=FILE count as well):\n  -b BACKEND%*sthe same as "
           "--backend\n",
           11, "");
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        char flag[40] = "--";

        if (option->backend)
            continue;
        for (size_t i = 0; option->key[i] && i < 30; i++)
            flag[i + 2] = option->key[i] == '_' ? '-' : option->key[i], flag[i + 3] = 0;
        printf("  %-20s %s\n", flag, option->help);
    }
}

static int help_for(const struct cuplug_command *command) {
    printf("usage: cuplug %s%s%s\n\n%s.\n%s", command->name, *command->arguments ? " " : "", command->arguments, command->help,
           command->more);
    if (command->function == cuplug_run || command->function == cuplug_env)
        print_flags();
    return 0;
}

static int help(void) {
    printf("usage: cuplug COMMAND [ARGUMENT]...   (cuplug COMMAND --help says more)\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\n  --version  print the version\n  --help     print this\n");
    return 0;
}

static int unknown(const char *name) {
    const struct cuplug_command *nearest = commands;

    for (int i = 1; i < COMMANDS; i++)
        if (cuplug_value_distance(name, commands[i].name) < cuplug_value_distance(name, nearest->name))
            nearest = &commands[i];
    cuplug_log(CUPLUG_LOG_ERROR, "%s: no such command (did you mean %s? `cuplug --help` lists them)", name, nearest->name);
    return CUPLUG_USAGE;
}

bool cuplug_no_arguments(int argc, char **argv) {
    if (argc > 1)
        cuplug_log(CUPLUG_LOG_ERROR, "%s: %s: takes no arguments", argv[0], argv[1]);
    return argc <= 1;
}

int main(int argc, char **argv) {
    int status;

    if (argc < 2) {
        cuplug_log(CUPLUG_LOG_ERROR, "no command given (`cuplug --help` lists them)");
        return CUPLUG_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0) {
        printf("cuplug " CUPLUG_VERSION "\n");
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
            return help_for(&commands[i]);
        status = commands[i].function(argc - 1, argv + 1);
        if (fflush(stdout) != 0 && status == 0) {
            cuplug_log(CUPLUG_LOG_ERROR, "%s: cannot write the output", argv[1]);
            status = 1;
        }
        return status;
    }
    return unknown(argv[1]);
}
