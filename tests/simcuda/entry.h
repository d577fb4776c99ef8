/* entry.h — the table's rows as numbers, and what every entry point does before and after its work. */
#ifndef SIM_ENTRY_H
#define SIM_ENTRY_H

#include "sim.h"

#define ANY_ROWS(x) ROW_##x,
#define PTSZ_ROWS(x) ROW_##x, ROW_##x##_ptsz,
#define PTDS_ROWS(x) ROW_##x, ROW_##x##_ptds,
#define ENTRY(stream, since, export, ...) stream##_ROWS(export)
#define EARLY ENTRY
enum sim_row {
#include "symbols.def"
    SIM_ROWS
};
#undef ENTRY
#undef EARLY
#undef ANY_ROWS
#undef PTSZ_ROWS
#undef PTDS_ROWS

struct sim_symbol {
    const char *export, *asked;
    int since;
    bool per_thread, early;
    void *address;
};
extern const struct sim_symbol sim_symbols[SIM_ROWS];

/* True: do the work. False: *result is already decided and the out pointer is to be zeroed. */
bool sim_enter(enum sim_row row, CUresult *result);

/* knobs.c */
bool sim_knobs_strike(enum sim_row row, CUresult *result); /* counts, delays; true: SIMCUDA_FAIL struck */
void sim_knobs_fail(const char *items);                    /* as SIMCUDA_FAIL, from now on; NULL: nothing fails any more */
unsigned long sim_knobs_calls(enum sim_row row);
bool sim_log_wanted(void);
void sim_log(enum sim_row row, CUresult result, const void *out, size_t out_size, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
