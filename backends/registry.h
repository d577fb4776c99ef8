/*
 * registry.h: the backends there are, by number and by name.
 */
#ifndef CUPLUG_REGISTRY_H
#define CUPLUG_REGISTRY_H

#include "cuplug_backend.h"

enum cuplug_backend_number { CUPLUG_BACKEND_DIRECT, CUPLUG_BACKEND_POOL, CUPLUG_BACKEND_COUNT };

extern const struct cuplug_backend_ops cuplug_backend_direct, cuplug_backend_pool;

/* The backend of that number, NULL past the last. */
const struct cuplug_backend_ops *cuplug_backend(int number);

/* What that backend's open stored. */
void *cuplug_backend_self(int number);

/* Reads a CUPLUG_BACKEND value: name, or name:options. An unknown name gives one line on stderr and direct; bad options one line and the
 * backend's defaults. */
int cuplug_backend_choose(const char *spec);

#endif
