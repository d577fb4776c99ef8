/*
 * reader.h: what options.c and file.c, the two halves of reading the options, need of each other.
 */
#ifndef CUPLUG_READER_H
#define CUPLUG_READER_H

#include "table.h"

#include <stddef.h>

/* Reads the configuration file and assigns its lines, except those whose variable is set in the environment. */
void cuplug_reader_file(const char *path);

/* Gives the option the value of `length` bytes at `text`; refuses it, and gives the default, if it does not parse. `where` stands
 * in front of the value in a message ("CUPLUG_LOG=", "file:3: log = "), `file` and `line` are the origin to remember. */
void cuplug_reader_assign(const struct cuplug_option *option, const char *where, const char *text, size_t length,
                          const char *file, int line);

/* Writes the one line: `where`, the value, what is wrong, what is used instead (NULL: nothing). The options are not valid from
 * now on. */
void cuplug_reader_refuse(const char *where, const char *value, size_t length, const char *what, const char *instead);

#endif
