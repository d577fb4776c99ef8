/*
 * command.h: the sub-commands of `cuplug`. Each gets the arguments from its own name on and returns the exit status: 0, 1 when it
 * found a problem, CUPLUG_USAGE when it was called wrongly. Output meant for scripts goes to stdout, one fact a line; messages go
 * to stderr by cuplug_log.
 */
#ifndef CUPLUG_COMMAND_H
#define CUPLUG_COMMAND_H

#include <stdbool.h>

#define CUPLUG_VERSION "0.1.0"

/* The statuses of `run` for failures of its own are those that env, nohup and the shells use. */
enum { CUPLUG_USAGE = 2, CUPLUG_REFUSED = 125, CUPLUG_NOT_EXECUTABLE = 126, CUPLUG_NOT_FOUND = 127 };

struct cuplug_command {
    const char *name;
    const char *arguments;
    const char *help; /* one line */
    const char *more; /* paragraphs for `cuplug NAME --help` */
    int (*function)(int argc, char **argv);
};

int cuplug_run(int argc, char **argv);
int cuplug_env(int argc, char **argv);
int cuplug_backends(int argc, char **argv);
int cuplug_config(int argc, char **argv);
int cuplug_doctor(int argc, char **argv);

/* For a sub-command that takes no arguments: says what is wrong and returns false if there are any. */
bool cuplug_no_arguments(int argc, char **argv);

/* With false, messages that are not errors are left out. */
void cuplug_log_warnings(bool wanted);

#endif
