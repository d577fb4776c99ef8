/*
 * show.h: options written out: a value as a user would write it, and the documentation that is made from options.def.
 */
#ifndef CUPLUG_SHOW_H
#define CUPLUG_SHOW_H

#include "config/table.h"

/* The value in force; "" for none. Sizes take the largest unit that is exact. */
void cuplug_show_value(const struct cuplug_option *option, char *text, size_t room);

/* All options, one a line: name (variable or backend:key), type, default, values, help, separated by tabs. */
void cuplug_show_table(void);
/* The tables of README.md, the sections of libcuplug(7). */
void cuplug_show_markdown(void);
void cuplug_show_man(void);

#endif
