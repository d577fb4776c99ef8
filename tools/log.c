/*
 * log.c: where the messages of config/ and of the command itself go: stderr. The options that govern the library's messages do
 * not apply here.
 */
#include "shim/log.h"

#include "command.h"

#include <stdarg.h>
#include <stdio.h>

static enum cuplug_log_level most = CUPLUG_LOG_WARN;

void cuplug_log_warnings(bool wanted) {
    most = wanted ? CUPLUG_LOG_WARN : CUPLUG_LOG_ERROR;
}

void cuplug_log(enum cuplug_log_level level, const char *format, ...) {
    char line[1024];
    va_list list;

    if (level > most)
        return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    fflush(stdout);
    fprintf(stderr, "cuplug: %s\n", line);
}
