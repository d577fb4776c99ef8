/*
 * sim.h — what the files of the simulated driver share: handles, work, and the one lock.
 *
 * sim.lock guards every structure declared here; only host functions and the bytes that device work moves are touched
 * without it. Functions that need the lock held say "locked". Nothing here is visible outside libcuda.so.1.
 */
#ifndef SIM_H
#define SIM_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_PAGE ((size_t)2 << 20)  /* the driver takes device memory in these */
#define SIM_UNIT ((size_t)512)      /* spacing and alignment of small allocations */
#define SIM_SMALL ((size_t)1 << 20) /* larger ones get pages of their own */
#define SIM_MAX_DEVICES 16

struct sim_op;
struct sim_graph;
struct sim_capture;
struct sim_node;
struct sim_pool;

/* --- memory ------------------------------------------------------------------------------------------------------- */

enum sim_kind { SIM_DEVICE, SIM_POOL, SIM_MANAGED, SIM_GRAPH, SIM_VMM, SIM_IPC, SIM_HOST };

struct sim_alloc {
    uintptr_t base;
    size_t size; /* as asked for */
    size_t span; /* as taken */
    enum sim_kind kind;
    int device;
    struct sim_ctx *ctx; /* whose destruction ends it; NULL: nobody's */
    struct sim_pool *pool;
    unsigned long long id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned host_flags;
    bool freeing;    /* a free has been accepted: no second one, no queries */
    bool cached;     /* lies in its pool, waiting for the next owner */
    bool registered; /* host memory that belongs to the program */
    bool sync_memops;
    bool exported;   /* another process may have it open: what it reads there stays after the free */
    unsigned access;     /* VMM mapping: bit per device */
    void *physical;      /* VMM mapping: of what */
    bool rdma;           /* VMM mapping: made so that network cards reach it */
    int graphs;          /* graph memory: how many graphs have a node for it */
    struct sim_op *idle; /* pool memory: done when the free has been reached */
    unsigned long long idle_stream;
    struct sim_alloc *prev, *next; /* all of them, or the pool's cached ones */
};

struct sim_page {
    struct sim_alloc *whole;  /* the large allocation it is part of */
    struct sim_alloc **units; /* small ones: owner of each unit */
    uint64_t *map;            /* small ones: taken units */
    const void *owner;        /* context or pool whose small ones may live here */
    unsigned free_units;
    bool used;
};

struct sim_device {
    int ordinal, memfd;
    uintptr_t base;
    size_t pages, total_pages, used_pages;
    struct sim_page *page;
    size_t first_free; /* no free page below it */
    struct sim_ctx *primary;
    unsigned primary_flags;
    int primary_refs;
    struct sim_pool *default_pool, *current_pool, *graph_pool;
};

/* --- contexts, streams, events -------------------------------------------------------------------------------------- */

struct sim_ctx {
    bool live, primary, green;
    struct sim_ctx *parent; /* green contexts submit to their primary context */
    int device;
    unsigned flags, api_version;
    unsigned long long id;
    CUresult sticky;
    CUresult unseen; /* a fault that no call has come upon yet: frees, queries and waits do, and make it sticky */
    int freeing;    /* frees that wait for the device; launches queue up behind them */
    int references; /* cuCtxAttach */
    struct sim_stream *legacy;
    struct sim_op *ops;      /* unfinished work, newest first */
    size_t blocking;         /* how many of them the legacy stream must wait for */
    struct sim_op **barrier; /* cuCtxWaitEvent: all later work waits for these */
    size_t barriers, barrier_room;
    unsigned peers; /* bit per device */
};

enum sim_stream_type { SIM_USER, SIM_LEGACY, SIM_PER_THREAD };

struct sim_stream {
    bool live;
    enum sim_stream_type type;
    struct sim_ctx *ctx;
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned long long thread; /* whose per-thread stream */
    struct sim_op *tail;
    struct sim_capture *capture;
    struct sim_node **cap_deps;
    size_t cap_ndeps, cap_room;
};

struct sim_event {
    bool live;
    unsigned flags;
    struct sim_ctx *ctx;
    struct sim_op *op;          /* last record; NULL: never recorded */
    unsigned long long capture; /* id of the capture it was recorded in; 0: outside … */
    struct sim_node **cap_deps; /* … behind these nodes */
    size_t cap_ndeps;
    struct sim_ipc_event *shared;
};

/* --- work ----------------------------------------------------------------------------------------------------------- */

enum sim_work_kind {
    SIM_EMPTY,
    SIM_HOSTFN,
    SIM_MEMSET,
    SIM_COPY,
    SIM_WAIT_VALUE,
    SIM_WRITE_VALUE,
    SIM_RELEASE,
    SIM_SCRIBBLE,
    SIM_NODE_ALLOC,
    SIM_NODE_FREE,
    SIM_NODE_RECORD,
    SIM_NODE_WAIT,
    SIM_NODE_CHILD,
    SIM_IPC_SIGNAL,
    SIM_IPC_AWAIT,
};

struct sim_work {
    enum sim_work_kind kind;
    union {
        struct {
            CUhostFn fn;
            CUstreamCallback callback;
            CUstream stream;
            void *data;
        } host;
        struct {
            uintptr_t dst;
            size_t pitch, width, height;
            unsigned value, elem;
        } set;
        struct {
            uintptr_t dst, src;
            size_t dst_pitch, src_pitch, dst_slice, src_slice, width, height, depth;
            void *staged; /* freed after the copy */
        } copy;
        struct {
            uintptr_t addr;
            uint64_t value;
            unsigned flags;
            bool wide;
        } value;
        struct {
            struct sim_alloc *alloc;
        } memory;
        struct {
            struct sim_event *event;
        } event;
        struct {
            struct sim_graph *graph;
        } child;
        struct {
            struct sim_ipc_event *shared;
            uint64_t ticket;
        } ipc;
    };
};

struct sim_op {
    int refs, pending;
    bool done, covered;          /* covered: some unfinished op of the same context comes after it */
    unsigned long long blocking; /* id of the stream, if the legacy stream waits for it */
    int waiters;
    struct sim_ctx *ctx;
    unsigned long long done_ns;
    struct sim_op **next; /* successors */
    size_t nnext, next_room;
    struct sim_op *older, *newer; /* ctx->ops */
    struct sim_op *queue;
    struct sim_work work;
};

/* --- the process ------------------------------------------------------------------------------------------------------ */

struct sim_state {
    pthread_mutex_t lock;
    pthread_cond_t done;            /* some op that somebody waits for is done, or a gate opened */
    int initialised, forked, ended; /* atomics, read without the lock */
    int devices;
    unsigned long long next_id; /* streams, contexts, buffers */
    struct sim_device device[SIM_MAX_DEVICES];
};
extern struct sim_state sim;

struct sim_thread {
    unsigned long long id;
    struct sim_thread *next;
    bool per_thread; /* the running entry point is a _ptsz or _ptds one */
    bool in_host_function;
    CUstreamCaptureMode capture_mode;
    struct sim_stream *stream; /* the per-thread stream used last, and what it was */
    unsigned long long stream_id;
    int depth;
    struct {
        struct sim_ctx *ctx;
        unsigned long long id;
    } stack[64];
};
struct sim_thread *sim_self(void);

static inline void sim_lock(void) {
    pthread_mutex_lock(&sim.lock);
}
static inline void sim_unlock(void) {
    pthread_mutex_unlock(&sim.lock);
}
static inline CUresult sim_unlock_return(CUresult r) {
    sim_unlock();
    return r;
}

/* knobs.c — environment, fault injection, log */
struct sim_knobs {
    int devices, driver;
    size_t memory;
    bool basic_managed; /* no concurrent managed access */
    bool exit_crash;
};
extern struct sim_knobs sim_knobs;
void sim_knobs_load(void);

/* handles.c — fixed-size handles, the last freed is the next given out (all locked) */
struct sim_ctx *sim_ctx_new(void);
struct sim_stream *sim_stream_new(void);
struct sim_event *sim_event_new(void);
struct sim_ctx *sim_ctx_check(CUcontext handle);
struct sim_event *sim_event_check(CUevent handle);
struct sim_stream *sim_stream_check(CUstream handle);
void sim_ctx_drop(struct sim_ctx *ctx);
void sim_stream_drop(struct sim_stream *stream);
void sim_event_drop(struct sim_event *event);
void sim_ctx_close_handles(struct sim_ctx *ctx); /* destroys its streams and events */
struct sim_stream *sim_stream_find_per_thread(struct sim_ctx *ctx, unsigned long long thread);
void sim_stream_each(void (*visit)(struct sim_stream *, void *), void *arg);

/* context.c (locked) */
void sim_ctx_look(struct sim_ctx *ctx); /* comes upon a fault */
CUresult sim_current(struct sim_ctx **ctx); /* the calling thread's, usable; sticky errors come back */
CUresult sim_ctx_usable(struct sim_ctx *ctx);
struct sim_ctx *sim_ctx_root(struct sim_ctx *ctx);                /* green → its primary */
CUresult sim_ctx_resolve(CUcontext handle, struct sim_ctx **ctx); /* NULL: current */

/* sched.c (locked) */
struct sim_op *sim_op_new(struct sim_ctx *ctx, const struct sim_work *work); /* one reference, not started */
void sim_op_after(struct sim_op *op, struct sim_op *earlier);
void sim_op_after_all(struct sim_op *op, struct sim_ctx *ctx); /* all unfinished work of ctx */
void sim_op_start(struct sim_op *op);
void sim_op_wait(struct sim_op *op);
struct sim_op *sim_op_ref(struct sim_op *op);
void sim_op_unref(struct sim_op *op);
void sim_op_replace(struct sim_op **slot, struct sim_op *op); /* takes a new reference */
void sim_ctx_drain(struct sim_ctx *ctx);                      /* waits for all earlier work */
unsigned long long sim_now_ns(void);

/* work.c — what a worker does, without the lock */
void sim_work_run(struct sim_ctx *ctx, struct sim_work *work);
bool sim_work_small(const struct sim_work *work);

/* stream.c (locked) */
CUresult sim_stream_resolve(CUstream handle, struct sim_stream **stream);
CUresult sim_submit(struct sim_stream *stream, const struct sim_work *work, struct sim_op **op); /* op: referenced, may be NULL */
CUresult sim_submit_marker(struct sim_stream *stream, struct sim_op **op);
struct sim_op *sim_stream_begin(struct sim_stream *stream, const struct sim_work *work); /* for graph launches */
void sim_stream_end(struct sim_stream *stream, struct sim_op *op);
void sim_stream_gate(struct sim_ctx *ctx);
void sim_stream_destroy(struct sim_stream *stream);

/* event.c (locked) */
void sim_event_record_op(struct sim_event *event, struct sim_op *op);
void sim_event_destroy(struct sim_event *event);

/* pages.c — device memory in pages and units (locked) */
CUresult sim_pages_setup(struct sim_device *device);
struct sim_alloc *sim_pages_take(struct sim_device *device, const void *owner, size_t size, size_t align_pages);
void sim_pages_give(struct sim_alloc *alloc);
struct sim_alloc *sim_pages_find(uintptr_t address);
bool sim_pages_mapped(uintptr_t address, size_t size);

/* ranges.c — everything that is not in a device's pages: host, managed, VMM, IPC (locked) */
struct sim_alloc *sim_range_add(uintptr_t base, size_t size, enum sim_kind kind);
void sim_range_remove(struct sim_alloc *alloc);
struct sim_alloc *sim_range_find(uintptr_t address);
struct sim_alloc *sim_range_overlap(uintptr_t address, size_t size);
size_t sim_ranges_managed(void); /* bytes */

/* vmm.c (locked) */
bool sim_vmm_accessible(uintptr_t address, size_t size);

/* memory.c (locked) */
struct sim_alloc *sim_find(uintptr_t address); /* live, any kind, interior allowed */
void sim_alloc_end(struct sim_alloc *alloc);   /* gives the memory back */
void sim_ctx_end_memory(struct sim_ctx *ctx);

/* pool.c (locked) */
void sim_pools_setup(struct sim_device *device);
struct sim_pool *sim_pool_check(CUmemoryPool handle);
struct sim_alloc *sim_pool_alloc(struct sim_pool *pool, size_t size, struct sim_stream *stream, struct sim_op **after);
void sim_pool_free(struct sim_alloc *alloc, struct sim_stream *stream, struct sim_op *op);
void sim_pool_keep_used(const struct sim_alloc *alloc); /* it was not freed in stream order: the pool goes on counting it as used (measured) */
void sim_pool_trim(struct sim_pool *pool, size_t keep);
void sim_pool_synchronised(int device);
size_t sim_pool_reclaim(int device); /* gives idle memory back when the device has none left */
void sim_pools_end_ctx(int device);

/* copy.c (locked) */
CUresult sim_copy(struct sim_stream *stream, struct sim_work *work, bool wait);

/* capture.c (locked) */
CUresult sim_capture_guard(struct sim_ctx *ctx);          /* an unsafe call: refused and harmful while somebody captures */
CUresult sim_capture_fence(struct sim_ctx *ctx);          /* context fences: worse */
CUresult sim_capture_identity(struct sim_stream *stream); /* cuStreamGetId of a capturing stream: harmful in every mode */
CUresult sim_capture_sync(struct sim_stream *stream);     /* a synchronising call on one stream */
CUresult sim_capture_implicit(struct sim_stream *stream); /* legacy work while a blocking stream captures */
CUresult sim_capture_beside(struct sim_stream *stream);   /* stream-ordered memory on a stream that does not capture */
CUresult sim_capture_add(struct sim_stream *stream, const struct sim_work *work, struct sim_node **node);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event, bool external);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event, bool external, bool *handled);
void sim_capture_forget_stream(struct sim_stream *stream);

/* The implementations of the entry points: sim_X for each X of the table. They take the lock themselves. */
#define ENTRY(stream, since, export, asked, parameters, ...) CUresult sim_##export parameters;
#define EARLY ENTRY
#include "symbols.def"
#undef ENTRY
#undef EARLY

#endif
