/*
 * table.h: options.def as data, for the reader (options.c) and for the cuplug command, which documents and shows it. Read only.
 */
#ifndef CUPLUG_TABLE_H
#define CUPLUG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum cuplug_option_type {
    CUPLUG_TYPE_INPUT_FILE,
    CUPLUG_TYPE_OUTPUT_FILE,
    CUPLUG_TYPE_TEMPLATE,
    CUPLUG_TYPE_WORD,
    CUPLUG_TYPE_SPEC,
    CUPLUG_TYPE_SPECS,
    CUPLUG_TYPE_BOOL,
    CUPLUG_TYPE_CHOICE,
    CUPLUG_TYPE_SIZE,
    CUPLUG_TYPE_SECONDS,
    CUPLUG_TYPE_AMOUNT
};

struct cuplug_option {
    const char *backend;  /* whose option it is, NULL for one with a variable */
    const char *variable; /* NULL for a backend's option */
    const char *key;      /* its name in a configuration file, or behind the backend's name */
    enum cuplug_option_type type;
    const char *standard; /* the default, as a user would write it; NULL for none */
    const char *values;   /* see options.def */
    const char *help;
    void *value; /* its field */
};

struct cuplug_backend_row {
    const char *name, *help;
};

/* Each ends with a row of NULLs. */
extern const struct cuplug_option cuplug_option_table[];
extern const struct cuplug_backend_row cuplug_backend_table[];

/* By the name in a configuration file, or of a backend's option if `backend` is not NULL; by the variable. NULL if there is none.
 */
const struct cuplug_option *cuplug_option_find(const char *backend, const char *key, size_t length);
const struct cuplug_option *cuplug_option_find_variable(const char *variable);

/* The option with a variable whose `key` (with CUPLUG_ in front: whose variable) is most like this word. */
const struct cuplug_option *cuplug_option_nearest(const char *word);

const struct cuplug_backend_row *cuplug_backend_find(const char *name, size_t length);

/* The same for what stands in CUPLUG_BACKEND, name:options. *name is how much of it names the backend, *options what follows, NULL for nothing. A
 * library is the row of plugin, which no other name is. */
const struct cuplug_backend_row *cuplug_backend_of(const char *spec, size_t length, size_t *name, const char **options);

/* The next of several, separated by blanks, from *text on, which goes behind it; its length, 0 at the end. */
size_t cuplug_backend_next(const char **text, const char *end, const char **spec);

/* "fence, completed", "1% to 100%, or …": what a value may be, in a few words. */
void cuplug_option_describe(const struct cuplug_option *option, char *text, size_t room);

/* "direct, pool, …", or the options of a backend. */
void cuplug_backend_names(char *text, size_t room);
/* Are the keys of "key=value,key=value" all the backend's? */
bool cuplug_suboptions_known(const char *backend, const char *text, size_t length);
void cuplug_suboption_names(const char *backend, char *text, size_t room);

/* Where the value in force comes from. */
struct cuplug_origin {
    const char *file; /* the configuration file */
    int line;         /* of the file; 0 for the environment, -1 for nowhere: the default */
    bool refused;     /* what stood there was not valid, so it is the default */
};

struct cuplug_origin cuplug_option_origin(const struct cuplug_option *option);

#endif
