/*
 * The driver as a library the program is linked to.
 */
#include "driver_kinds.h"

void reach_driver(struct driver_table *table) {
#define DRIVER(name) table->name = name;
#include "driver_table.def"
#undef DRIVER
}
