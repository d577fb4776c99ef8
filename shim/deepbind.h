/*
 * deepbind.h: libraries opened with RTLD_DEEPBIND find the C library's dlsym and the driver before they find us, so they would free a pool's block
 * behind the pool's back. CUPLUG_DEEPBIND says what is done about it.
 */
#ifndef CUPLUG_DEEPBIND_H
#define CUPLUG_DEEPBIND_H

#include <stdbool.h>

/* Has such a library been opened, so that new memory must be the driver's own? Says so once. */
bool cuplug_deepbind_native(void);

/* Called from dlopen.S: the flags to open `name` with, when they hold RTLD_DEEPBIND. */
int cuplug_deepbind_flags(const char *name, int flags);

/* Called from dlopen.S: the C library's dlopen (or the next preload's); never NULL. */
void *cuplug_deepbind_real_dlopen(void);

#endif
