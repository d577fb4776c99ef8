/*
 * log.c: see log.h. Holds no lock and no buffer: one write(2) a line keeps lines whole between threads and processes.
 */
#include "log.h"

#include "config/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "cuplug: ";

void cuplug_log(enum cuplug_log_level level, const char *format, ...) {
    char line[1024];
    const size_t room = sizeof line - 1; /* for the newline */
    int saved = errno, length, fd = STDERR_FILENO;
    size_t end = sizeof prefix - 1;
    va_list list;

    if (level > (enum cuplug_log_level)cuplug_options.log)
        return;
    memcpy(line, prefix, end);
    va_start(list, format);
    length = vsnprintf(line + end, room - end, format, list);
    va_end(list);
    if (length > 0)
        end += (size_t)length < room - end ? (size_t)length : room - end - 1;
    for (size_t i = 0; i < end; i++) /* what is quoted may hold anything; a message is one line */
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[end++] = '\n';
    if (cuplug_options.log_file && *cuplug_options.log_file) {
        int file = open(cuplug_options.log_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (file >= 0)
            fd = file;
    }
    if (write(fd, line, end) < 0) {
        /* nowhere left to say so */
    }
    if (fd != STDERR_FILENO)
        close(fd);
    errno = saved;
}
