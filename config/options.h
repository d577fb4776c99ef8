/*
 * options.h: the options of this process, read once from the environment and the configuration file. See options.def for what each means.
 */
#ifndef CUPLUG_OPTIONS_H
#define CUPLUG_OPTIONS_H

#include "value.h"

#include <stdbool.h>
#include <stddef.h>

#define CUPLUG_C_INPUT_FILE const char *
#define CUPLUG_C_OUTPUT_FILE const char *
#define CUPLUG_C_TEMPLATE const char *
#define CUPLUG_C_WORD const char *
#define CUPLUG_C_SPEC const char *
#define CUPLUG_C_SPECS const char *
#define CUPLUG_C_BOOL bool
#define CUPLUG_C_CHOICE int
#define CUPLUG_C_SIZE uint64_t
#define CUPLUG_C_SECONDS uint64_t
#define CUPLUG_C_AMOUNT struct cuplug_amount

struct cuplug_options {
#define OPTION(field, variable, type, standard, values, help) CUPLUG_C_##type field;
#include "options.def"
};

/* struct cuplug_pool_options and so on: one for each backend, with a field for each of its options. */
#define BACKEND(name, help) struct cuplug_##name##_options {
#define SUBOPTION(backend, field, key, type, standard, values, help) CUPLUG_C_##type field;
#define BACKEND_END(name) };
#include "options.def"

extern struct cuplug_options cuplug_options;
#define BACKEND(name, help) extern struct cuplug_##name##_options cuplug_##name##_options;
#include "options.def"

#undef CUPLUG_C_INPUT_FILE
#undef CUPLUG_C_OUTPUT_FILE
#undef CUPLUG_C_TEMPLATE
#undef CUPLUG_C_WORD
#undef CUPLUG_C_SPEC
#undef CUPLUG_C_SPECS
#undef CUPLUG_C_BOOL
#undef CUPLUG_C_CHOICE
#undef CUPLUG_C_SIZE
#undef CUPLUG_C_SECONDS
#undef CUPLUG_C_AMOUNT

/* Reads environment and configuration file. A refused value gives one line that names variable (or file:line), value, what would be right and
 * what is used instead: the default. Afterwards cuplug_options.backend names a backend of options.def, or a library, and the option struct of that
 * backend (plugin) is filled. Keeps errno. */
void cuplug_options_read(void);

/* The same for a command that will not go on if something is refused, so the lines name no replacement. True if all is valid. */
bool cuplug_options_check(void);

/* False if something was refused. With cuplug_options.strict, allocations must fail then. */
bool cuplug_options_valid(void);

/* Takes the library that contains this function out of LD_PRELOAD in this process's environment, so that children run without it; other
 * entries, their order and separators stay. To be called once, at the first look-up: it uses setenv, which is no more safe against a thread that
 * reads the environment at that very moment than the program's own setenv is. Keeps errno. */
void cuplug_options_unfollow(void);

#endif
