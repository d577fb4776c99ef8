/*
 * file.c: the configuration file: lines "name = value" with the options' names in lower case and without CUPLUG_, blank lines,
 * and comments from a
 * '#' at the beginning of a line or after a blank to its end. A name given twice counts the last time. Read whole with read(2)
 * into pages of our own, which are given back; only a regular file, so that opening it can neither block nor have an effect.
 */
#include "reader.h"

#include "value.h"

#include "shim/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST = 1 << 20 };

struct source {
    const char *path;
    int line;
};

static ssize_t read_all(int fd, char *bytes, size_t room) {
    size_t done = 0;

    while (done < room) {
        ssize_t got = read(fd, bytes + done, room - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Why it cannot be read, NULL if it was: then *bytes is a mapping of `room`, `length` of which are the file. */
static const char *load(int fd, char **bytes, size_t *room, size_t *length) {
    struct stat status;
    ssize_t got;

    if (fd < 0 || fstat(fd, &status) != 0)
        return strerror(errno);
    if (S_ISDIR(status.st_mode))
        return "is a directory";
    if (!S_ISREG(status.st_mode))
        return "is not a regular file";
    if (status.st_size > LARGEST)
        return "is larger than 1 MiB";
    *room = (size_t)status.st_size + 1;
    *bytes = cuplug_pages_map(*room);
    if (!*bytes)
        return strerror(ENOMEM);
    got = read_all(fd, *bytes, *room - 1);
    if (got < 0) {
        int error = errno;

        cuplug_pages_unmap(*bytes, *room);
        return strerror(error);
    }
    *length = (size_t)got;
    return NULL;
}

static size_t without_comment(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] == '#' && (i == 0 || cuplug_value_blank(text[i - 1])))
            return i;
    return length;
}

static void read_line(const struct source *source, const char *text, size_t length) {
    char where[400], what[160], name[64];
    const struct cuplug_option *option;
    const char *equals, *key, *value;
    size_t key_length, value_length;

    length = without_comment(text, length);
    cuplug_value_trim(&text, &length);
    if (!length)
        return;
    snprintf(where, sizeof where, "%.300s:%d: ", source->path, source->line);
    equals = memchr(text, '=', length);
    if (!equals) {
        cuplug_reader_refuse(where, text, length, "no `=` (lines are: name = value)", NULL);
        return;
    }
    key = text;
    key_length = (size_t)(equals - text);
    value = equals + 1;
    value_length = length - key_length - 1;
    cuplug_value_trim(&key, &key_length);
    cuplug_value_trim(&value, &value_length);
    option = cuplug_option_find(NULL, key, key_length);
    if (!option) {
        snprintf(name, sizeof name, "%.*s", (int)(key_length < 60 ? key_length : 60), key);
        snprintf(what, sizeof what, "no such option (did you mean %s?)", cuplug_option_nearest(name)->key);
        cuplug_reader_refuse(where, text, length, what, NULL);
        return;
    }
    if (option->type == CUPLUG_TYPE_INPUT_FILE) {
        cuplug_reader_refuse(where, text, length, "not here (CUPLUG_CONFIG or --config names the file)", NULL);
        return;
    }
    if (cuplug_option_origin(option).line == 0)
        return; /* the environment wins */
    snprintf(where + strlen(where), sizeof where - strlen(where), "%s = ", option->key);
    cuplug_reader_assign(option, where, value, value_length, source->path, source->line);
}

void cuplug_reader_file(const char *path) {
    struct source source = {.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *bytes = NULL, what[160];
    size_t room = 0, length = 0;
    const char *problem = load(fd, &bytes, &room, &length);

    if (fd >= 0)
        close(fd);
    if (problem) {
        snprintf(what, sizeof what, "%s (a file with lines: name = value)", problem);
        cuplug_reader_refuse("CUPLUG_CONFIG=", path, strlen(path), what, NULL);
        return;
    }
    for (const char *text = bytes, *end = bytes + length; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;

        source.line++;
        read_line(&source, text, (size_t)(stop - text));
        text = stop + 1;
    }
    cuplug_pages_unmap(bytes, room);
}
