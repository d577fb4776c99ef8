/*
 * limit.h: CUPLUG_LIMIT, how much may be live on each device of what the backend serves. Exact with any number of threads: charged before the backend is
 * asked. What the driver makes beside, at the program's own request (managed memory, a pool's), and the fallbacks' are not charged.
 */
#ifndef CUPLUG_LIMIT_H
#define CUPLUG_LIMIT_H

#include "real.h"

#include <stdbool.h>
#include <stddef.h>

/* Is there one? Written before the state is published. */
extern bool cuplug_limited;

/* Reads the option; it is this backend's. */
void cuplug_limit_init(int backend);

/* Before an allocation of this backend and kind: false if it does not fit. */
bool cuplug_limit_charge(int backend, int kind, CUdevice device, size_t size);
/* After one that was made without being asked for here. */
void cuplug_limit_charge_anyway(int backend, int kind, CUdevice device, size_t size);
/* It was freed, ended with its context, or failed. */
void cuplug_limit_discharge(int backend, int kind, CUdevice device, size_t size);

/* Of so many free bytes, those that an allocation may have. */
size_t cuplug_limit_leaves(CUdevice device, size_t free);

#endif
