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
 * and the allocator's functions, which make CUDA calls. None changes what cudaGetLastError will say. Errors are negative errno values.
 */
#ifndef CUPLUG_H
#define CUPLUG_H

#include <stddef.h>
#include <sys/types.h>

struct CUstream_st; /* cudaStream_t points to it */

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

/*
 * cuplug as the allocator of PyTorch or CuPy, with or without LD_PRELOAD. Backend and options are those of the environment (CUPLUG_BACKEND=arena:size=8G),
 * `pool` if none is named. Device memory of the calling process; sizes in bytes; `device` is the ordinal; NULL stream is the legacy default stream.
 *
 * PyTorch: CUDAPluggableAllocator(path, "cuplug_torch_malloc", "cuplug_torch_free"), for change_current_allocator or a MemPool; the rest are its
 * optional functions (allocator._allocator.set_record_stream_fn and so on). Memory is used and freed in the order of the stream given.
 */

/* NULL without memory. On a stream that captures this is plain memory, not a node of the graph. */
CUPLUG_API void *cuplug_torch_malloc(ssize_t size, int device, struct CUstream_st *stream);
CUPLUG_API void cuplug_torch_free(void *pointer, ssize_t size, int device, struct CUstream_st *stream);
/* The block is also used on `stream`: its next use comes after what that stream has been given until the free. */
CUPLUG_API void cuplug_torch_record_stream(void *pointer, struct CUstream_st *stream);

/* The id of a torch.cuda.MemPool or graph pool (c10::MempoolId_t). */
struct cuplug_torch_pool {
    unsigned long long id[2];
};
/* What is allocated or freed on a capturing stream meanwhile belongs to this pool: it is not reused before the pool's release. */
CUPLUG_API void cuplug_torch_begin_allocate_to_pool(int device, struct cuplug_torch_pool pool, void *filter);
CUPLUG_API void cuplug_torch_end_allocate_to_pool(int device, struct cuplug_torch_pool pool);
CUPLUG_API void cuplug_torch_release_pool(int device, struct cuplug_torch_pool pool);

CUPLUG_API void cuplug_torch_init(int devices);
/* Gives back what is idle. */
CUPLUG_API void cuplug_torch_reset(void);
/* No more than this share of the device's memory may be live; 1: any. */
CUPLUG_API void cuplug_torch_memory_fraction(double fraction, int device);
/* The driver's allocation that the block lies in: its address, and in *size its bytes. */
CUPLUG_API void *cuplug_torch_base_alloc(void *pointer, size_t *size);

/* CuPy: CFunctionAllocator(0, malloc's address, free's address, owner). A free is like cudaFree: after all earlier work of the context. */
CUPLUG_API void *cuplug_cupy_malloc(void *param, size_t size, int device);
CUPLUG_API void cuplug_cupy_free(void *param, void *pointer, int device);

#ifdef __cplusplus
}
#endif

#endif
