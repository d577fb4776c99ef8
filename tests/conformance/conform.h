/*
 * What the files of the conformance program share: how a line is printed, the kinds of memory there are and the ways to free it.
 *
 * Each rule of the driver gives one line, "group/name: outcome". A line holds nothing that changes from run to run or between
 * two right drivers: no addresses, no times. It is begun before the call it is about, so that a crash names its rule.
 */
#ifndef CUPLUG_CONFORM_H
#define CUPLUG_CONFORM_H

#include "program.h"
#include <cuda.h>
#include <cuda_runtime_api.h>

#define KEPT ((void *)0x7) /* what an out-parameter holds before the call */

/* --- lines (main.c) --- */

void begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* one more word of the outcome */
void end(void);
void line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For groups of independent cases: whether this one is to be run. After a crash the group is started again behind the case. */
bool wanted(void);
/* Set-up that must work; the group ends where it does not. */
void need(cudaError_t error, const char *what);
void need_driver(CUresult error, const char *what);
#define NEED(call) need(call, #call)
#define NEED_CU(call) need_driver(call, #call)

const char *rt(cudaError_t error);
const char *cu(CUresult error);
/* The runtime's last error after a call that returned `error`: none, same, or what it is. Takes it. */
const char *last(cudaError_t error);
/* "code last": the outcome of a runtime call, made with no error pending. */
void say_rt(cudaError_t error);
/* The same of a driver call, which must not touch the runtime's last error. */
void say_cu(CUresult error);
/* null, kept, set */
const char *pointer(const void *p);
/* same, null, interior's base and so on: where p lies with regard to what is expected. */
const char *versus(const void *p, const void *expected);

/* --- memory (kinds.c) --- */

enum kind { MALLOC, PITCH, THREE_D, MANAGED, ASYNC, FROM_POOL, GRAPH, DRIVER, DRIVER_PITCH, DRIVER_MANAGED, DRIVER_ASYNC, KINDS };
enum way { FREE, FREE_ASYNC, MEM_FREE, MEM_FREE_ASYNC, WAYS };
extern const char *const kind_name[KINDS];
extern const char *const way_name[WAYS];

/* The group's own stream (non-blocking), pool and a second stream; made by start(). */
extern cudaStream_t stream, second;
extern cudaMemPool_t own_pool;
void start(void);

/* Allocates; *driver says whether the code is a CUresult. Graph memory is that of a graph launched once and done. */
struct outcome {
    bool driver;
    int code;
};
struct outcome take(enum kind kind, void **p, size_t size);
struct outcome give(enum way way, void *p);
void say_outcome(struct outcome outcome);
bool worked(struct outcome outcome);
/* Takes memory that must be there, and gets rid of it whatever it is. Neither prints anything. */
void *memory(enum kind kind, size_t size);
void drop(void *p);

/* A mapping of two granules of virtual memory. */
struct mapping {
    CUdeviceptr at;
    size_t size;
    CUmemGenericAllocationHandle handle;
};
void map(struct mapping *mapping);
void unmap(struct mapping *mapping);

/* --- contexts and devices --- */

CUcontext new_context(void); /* of device 0, current (contexts.c) */

/* Both devices, each with two non-blocking streams; start_both() leaves 0 current (devices.c). */
struct device_side {
    cudaStream_t one, two;
    cudaEvent_t event;
    CUcontext primary;
};
extern struct device_side side[2];
void start_both(void);
void on(int device);
int device_now(void);
void *on_device(int device, enum kind kind, size_t size); /* memory of it, which becomes current */
void finish(void);                                        /* all work of both is over; the same device is current as before */
bool keeps(const char *p, int value, size_t size);        /* after all that, at both ends */

/* --- work --- */

void occupy(cudaStream_t on, int ms); /* a host function that runs so long */
/* A host function that runs until waited() is asked whether the call before it returned only when the work was over. */
void busy(cudaStream_t on);
const char *waited(void);
bool unsure(void); /* the first time after it said yes: a loaded machine may let any call take so long, so look once more */
void set_flag(int *flag);
bool raised(int *flag);
bool holds(const void *memory, int value, size_t size); /* on the device, once all work is done */

const char *types_of(cudaGraph_t graph); /* how many nodes of each type it has */

/* Runs body in a new thread and waits for it. */
void in_thread(void (*body)(void *), void *argument);

#endif
