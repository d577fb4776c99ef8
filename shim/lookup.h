/*
 * lookup.h: which look-ups get our wrapper. The real driver is always asked first; only an address that is exactly the driver's export of
 * that name's variant is replaced.
 */
#ifndef CUPLUG_LOOKUP_H
#define CUPLUG_LOOKUP_H

#include <stdbool.h>

typedef void *cuplug_dlsym_fn(void *handle, const char *name);

/* The C library's dlsym (or the next preload's). Found at the first call; never NULL afterwards. Also called from dlsym.S. */
cuplug_dlsym_fn *cuplug_lookup_real_dlsym(void);

/* Called from dlsym.S with a name that starts with "cu": non-zero if we export it. */
int cuplug_lookup_wants(const char *name);

/* Called, or rather jumped to, from dlsym.S for a real handle and a name that we export. A driver function becomes our wrapper, unless the
 * driver itself asks. Our own export counts as found only where something follows it, as without us. */
void *cuplug_lookup_dlsym(void *handle, const char *name);

#endif
