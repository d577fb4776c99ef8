/*
 * cuplug.h: what a program may ask of cuplug while it runs. Installed as cuplug/cuplug.h; stands alone, for C and C++.
 *
 * Every function is declared weak, so a program that is built with this header links and runs without the library, too:
 *
 *     if (cuplug_api_version && cuplug_api_version() >= 1)
 *         printf("%s serves device memory\n", cuplug_get_backend());
 *
 * (Link with -Wl,-z,undefs or nothing at all; there is no library to link with.) From Python: ctypes.CDLL(None), or the library's path.
 *
 * All functions may be called from any thread at any time, also before the program's first CUDA call and in stream callbacks, except cuplug_trim,
 * which makes CUDA calls. None changes what cudaGetLastError will say. Errors are negative errno values.
 */
#ifndef CUPLUG_H
#define CUPLUG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CUPLUG_API
#define CUPLUG_API __attribute__((weak))
#endif

/* The version of this interface that the library has; a later one has all that an earlier one has. Now 1. */
CUPLUG_API int cuplug_api_version(void);

/* The backend that serves device memory, by its name as in CUPLUG_BACKEND ("pool"), without options. NULL while cuplug is not at work: before the
 * first CUDA call, with CUPLUG_DISABLE=1, or in a child that was forked after CUDA had been used. The text is cuplug's and stays. */
CUPLUG_API const char *cuplug_get_backend(void);

/* One figure of the statistics, as in the file that CUPLUG_STATS writes: "allocations", "live_bytes", "peak_reserved_bytes" and so on. Of one device
 * (its ordinal, from 0), or of all together with device -1. A figure is exact when no other thread allocates meanwhile. 0, or -ENOENT: no such name,
 * -ENODEV: a device that has no figures of its own (the first 64 have), -EINVAL: no place for the value. */
CUPLUG_API int cuplug_get_stat(const char *name, int device, long long *value);

/* The names of all figures: number 0, 1, … ; NULL past the last. */
CUPLUG_API const char *cuplug_stat_name(int number);

/* Gives memory that cuplug holds idle on the device back to the driver, so that other processes can have it; an arena keeps its own. Waits for the device.
 * Returns the bytes given back, or -EBUSY while any stream captures, -EAGAIN while cuplug is not at work, -ENODEV: no such ordinal. */
CUPLUG_API long long cuplug_trim(int device);

#ifdef __cplusplus
}
#endif

#endif
