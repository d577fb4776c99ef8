/*
 * run.c: `cuplug run`: becomes the program, with the library preloaded, so that the program's status and signals are its own.
 */
#include "command.h"
#include "launch.h"

#include "config/options.h"
#include "shim/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int cuplug_run(int argc, char **argv) {
    int program = cuplug_launch_flags(argc, argv);

    if (program < 0)
        return CUPLUG_REFUSED;
    if (program >= argc) {
        cuplug_log(CUPLUG_LOG_ERROR, "run: no program given (cuplug run [--OPTION]... [--] PROGRAM [ARGUMENT]...)");
        return CUPLUG_REFUSED;
    }
    cuplug_log_warnings(false); /* the library itself will say them */
    if (!cuplug_options_check() || !cuplug_launch_preload(argv[0]))
        return CUPLUG_REFUSED;
    execvp(argv[program], argv + program);
    cuplug_log(CUPLUG_LOG_ERROR, "run: %s: %s", argv[program], strerror(errno));
    return errno == ENOENT ? CUPLUG_NOT_FOUND : CUPLUG_NOT_EXECUTABLE;
}
