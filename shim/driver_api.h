/*
 * driver_api.h: the wrappers of hooks.def, each with exactly the type of the driver function it stands in for.
 */
#ifndef CUPLUG_DRIVER_API_H
#define CUPLUG_DRIVER_API_H

#include "real.h"

#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper) __typeof__(export) wrapper;
#include "hooks.def"
#undef HOOK
#undef RUNTIME_HOOK

#endif
