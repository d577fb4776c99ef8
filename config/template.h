/*
 * template.h: names of output files: %p and its like, replaced by what tells one process from another.
 */
#ifndef CUPLUG_TEMPLATE_H
#define CUPLUG_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

struct cuplug_directive {
    const char *text; /* "%p" */
    const char *help; /* "the process id" */
    const char *
        variables; /* separated by blanks; the first that is set gives the value. NULL if it does not come from the environment */
};

/* Ends with a row of NULLs. */
extern const struct cuplug_directive cuplug_directive_table[];

/* Is every % followed by something that options.def's documentation lists? If not, writes what is wrong. */
bool cuplug_template_check(const char *template, char *what, size_t room);

/* Writes the path. What the environment does not say becomes "none", with one warning that names `variable`; a '/' in what is put
 * in becomes '_', so that no value leads to another folder. False, with one line, if it does not fit. The template has been
 * checked. */
bool cuplug_template_expand(const char *variable, const char *template, char *path, size_t room);

/* "%p, %h, …" */
void cuplug_template_directives(char *text, size_t room);

#endif
