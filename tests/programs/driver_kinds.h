/*
 * Between driver_kinds.c and the reach_*.c files: each of those fills the table of driver functions in its own way.
 */
#ifndef CUPLUG_TEST_DRIVER_KINDS_H
#define CUPLUG_TEST_DRIVER_KINDS_H

#include "program.h"
#include <cuda.h>

struct driver_table {
#define DRIVER(name) __typeof__(&name) name;
#include "driver_table.def"
#undef DRIVER
};

/* Fills every entry or ends the program. */
void reach_driver(struct driver_table *table);

#endif
