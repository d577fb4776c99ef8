/*
 * wrappers.c — the exported entry points, made from symbols.def. Each checks that the driver may be called at all, lets
 * the knobs strike, calls its implementation and writes the log line.
 */
#include "entry.h"

#include <cudaTypedefs.h>
#include <stdlib.h>
#include <string.h>

/* Each row's version is the toolkit's: PFN_<asked>_v<since> must have the export's type. */
#define ENTRY(stream, since, export, asked, ...)                                                                                 \
    static const PFN_##asked##_v##since type_of_##export __attribute__((unused)) = export;
#define EARLY ENTRY
#include "symbols.def"
#undef ENTRY
#undef EARLY

bool sim_enter(enum sim_row row, CUresult *result) {
    if (__atomic_load_n(&sim.ended, __ATOMIC_ACQUIRE)) {
        if (sim_knobs.exit_crash)
            abort();
        *result = CUDA_ERROR_DEINITIALIZED;
        return false;
    }
    if (row == ROW_cuGetErrorName || row == ROW_cuGetErrorString) /* tables */
        return true;
    if (__atomic_load_n(&sim.forked, __ATOMIC_ACQUIRE) ||
        (!sim_symbols[row].early && !__atomic_load_n(&sim.initialised, __ATOMIC_ACQUIRE))) {
        *result = CUDA_ERROR_NOT_INITIALIZED;
        return false;
    }
    struct sim_thread *self = sim_self();
    if (self->in_host_function && !sim_symbols[row].early) {
        *result = CUDA_ERROR_NOT_PERMITTED;
        return false;
    }
    self->per_thread = sim_symbols[row].per_thread;
    return !sim_knobs_strike(row, result);
}

static void clear(void *out, size_t size) {
    if (out)
        memset(out, 0, size);
}

#define WRAPPER(name, export, parameters, arguments, out, ...)                                                                   \
    CUresult name parameters {                                                                                                   \
        CUresult r_;                                                                                                             \
        if (sim_enter(ROW_##name, &r_))                                                                                          \
            r_ = sim_##export arguments;                                                                                         \
        else                                                                                                                     \
            clear((void *)(out), sizeof(*(out)));                                                                                \
        if (sim_log_wanted())                                                                                                    \
            sim_log(ROW_##name, r_, (const void *)(out), sizeof(*(out)), __VA_ARGS__);                                           \
        return r_;                                                                                                               \
    }
#define ANY_WRAPPERS(export, ...) WRAPPER(export, export, __VA_ARGS__)
#define PTSZ_WRAPPERS(export, ...) WRAPPER(export, export, __VA_ARGS__) WRAPPER(export##_ptsz, export, __VA_ARGS__)
#define PTDS_WRAPPERS(export, ...) WRAPPER(export, export, __VA_ARGS__) WRAPPER(export##_ptds, export, __VA_ARGS__)

#define ENTRY(stream, since, export, asked, ...) stream##_WRAPPERS(export, __VA_ARGS__)
#define EARLY ENTRY
#pragma GCC diagnostic ignored "-Wformat-zero-length"
#pragma GCC diagnostic ignored "-Wpointer-arith"
#include "symbols.def"
#undef ENTRY
#undef EARLY
#undef ANY_WRAPPERS
#undef PTSZ_WRAPPERS
#undef PTDS_WRAPPERS
#undef WRAPPER

#define ROW(name, asked, since, per_thread, early) [ROW_##name] = {#name, #asked, since, per_thread, early, (void *)name},
#define LATER(since) ((since) > 7000 ? (since) : 7000) /* per-thread default streams came with CUDA 7 */
#define ANY_ROWS(e, a, s, early) ROW(e, a, s, false, early)
#define PTSZ_ROWS(e, a, s, early) ROW(e, a, s, false, early) ROW(e##_ptsz, a, LATER(s), true, early)
#define PTDS_ROWS(e, a, s, early) ROW(e, a, s, false, early) ROW(e##_ptds, a, LATER(s), true, early)
#define ENTRY(stream, since, export, asked, ...) stream##_ROWS(export, asked, since, false)
#define EARLY(stream, since, export, asked, ...) stream##_ROWS(export, asked, since, true)
const struct sim_symbol sim_symbols[SIM_ROWS] = {
#include "symbols.def"
};
