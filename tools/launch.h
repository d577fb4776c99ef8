/*
 * launch.h: what `run` and `env` share: flags to environment variables, finding the library, the new LD_PRELOAD.
 */
#ifndef CUPLUG_LAUNCH_H
#define CUPLUG_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

/* Puts the flags behind argv[0] into the environment, as options.def names them. The index of the first argument that is none of
 * them (behind "--" if that stands there), or -1 with a message. */
int cuplug_launch_flags(int argc, char **argv);

/* The library: $CUPLUG_LIBRARY, or beside this executable, in ../lib/cuplug or in ../lib. False with a message. `who` starts
 * messages. */
bool cuplug_launch_library(const char *who, char *path, size_t room);

/* The same, silently: false if there is none. */
bool cuplug_launch_find(char *path, size_t room);

/* Appends the library to LD_PRELOAD in this process's environment, unless it is there. What is there stays in front: a
 * sanitizer's runtime must be first. False with a message. */
bool cuplug_launch_preload(const char *who);

/* Are these two names of one file? */
bool cuplug_same_file(const char *one, const char *other);

#endif
