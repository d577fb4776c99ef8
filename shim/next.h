/*
 * next.h: whose a definition is: the C library's dlsym and dlopen (or the next preload's), which ours stand in front of and which
 * cannot be asked for by dlsym; what belongs to this library; what to another copy of it.
 */
#ifndef CUPLUG_NEXT_H
#define CUPLUG_NEXT_H

#include <stdbool.h>

/* For what may run while a sanitizer starts: it looks its functions up by dlsym, which is ours, before instrumented code can run. */
#ifdef __clang__
#define CUPLUG_EARLY __attribute__((disable_sanitizer_instrumentation))
#else
#define CUPLUG_EARLY __attribute__((no_sanitize("address,thread,undefined")))
#endif

/* The definition of `name` that follows this library's; NULL if there is none. */
void *cuplug_next(const char *name);

/* Does this library stand in front of the C library, where it was preloaded or linked, so that the program's calls come by here? */
bool cuplug_before_libc(void);

/* Do both addresses lie in the same loaded object? */
bool cuplug_same_object(const void *one, const void *other);

/* Exported by every copy of this library; read by no program. */
#define CUPLUG_MARK "cuplug_loaded"

#endif
