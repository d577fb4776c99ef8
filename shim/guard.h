/*
 * guard.h: calls into a library that may throw. The shim is C and is linked to no C++ runtime; a frame of ours with a personality
 * routine stops exceptions all the same, by means of whatever unwinder and C++ runtime threw.
 */
#ifndef CUPLUG_GUARD_H
#define CUPLUG_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Calls body(argument). False if an exception left it; then `what` holds its type's (mangled) name, or "an exception". An
 * unwinder that is linked statically into the library cannot be served: there the exception goes on, and ends the process if
 * nobody else catches it. */
bool cuplug_guard(void (*body)(void *argument), void *argument, char *what, size_t room);

#endif
