/*
 * soak.h: what the files of the soak share. The program draws operations at random and knows of each what it must come to
 * (operations.c, others.c); who has which byte is kept twice (model.c): on the host, from an allocation's return to its free's
 * call, and on the device, where host functions in the streams say when a block's first and last use is reached. So two owners
 * show at once, and a block that is handed on before the device is done with its former owner shows when the device gets there,
 * whatever the block's size and wherever in it the next one begins.
 *
 * Every operation has its own random numbers, of seed, thread and number; a failure names the three. Only for the simulated
 * driver.
 */
#ifndef CUPLUG_SOAK_H
#define CUPLUG_SOAK_H

#include "tests/programs/program.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

enum { SLOTS = 40, LANES = 16, DEAD = 16, CONTEXTS = 3, MOST_THREADS = 64 };

/* Where memory and streams are: the primary context, one that all threads share, one of the thread's own that comes and goes. */
enum place { PRIMARY, SHARED, OWN };

enum kind { SYNC, ORDERED };

struct block {
    CUdeviceptr address; /* 0: none */
    size_t size;
    uint32_t id;
    enum kind kind;
    enum place place;
    int lane;    /* the last use is ordered by this stream */
    bool pinned; /* by a graph that is not launched yet */
    bool unused; /* no work of the device's touches it, and nothing is between its allocation and its free */
};

/* A stream. The first two of each place are its default streams, the others are created. */
struct lane {
    CUstream stream;
    enum place place;
    bool there;
};

struct thread {
    int number;
    uint64_t operation; /* which one it is at */
    uint64_t random;
    int current;    /* place whose context is current, -1: not known */
    bool capturing; /* inside its own capture */
    CUcontext own;
    CUevent mark[CONTEXTS];
    struct lane lanes[LANES];
    struct block blocks[SLOTS];
    CUdeviceptr dead[DEAD]; /* freed */
    uint64_t armed_until;
    _Atomic int queued; /* host functions under way */
};

struct soak {
    uint64_t seed, operations;
    int threads, contexts, slots;
    size_t largest;
    int slow;
    bool captures, faults, foreign;
    CUcontext context[2];
    const char *backend; /* NULL: the bare driver */
    size_t room;         /* the device's bytes, or the arena's */
    size_t used_before;
};
extern struct soak soak;

/* What has happened, all threads together. */
struct tally {
    _Atomic uint64_t allocations, frees, out_of_memory, other_failures, lost, handed, captured, contexts, faults, refused,
        live_bytes, live_blocks;
};
extern struct tally tally;

/* Relaxed, here and in model.c: the soak must not order its threads where the library does not. */
static inline void count(_Atomic uint64_t *number, uint64_t by) {
    atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}
static inline uint64_t read_count(const _Atomic uint64_t *number) {
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* --- model.c --- */

/* Prints what is wrong and ends the process. */
void wrong(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Whose operation it is that the calling thread is at, for that. */
void at(int thread, uint64_t operation);

void model_init(void);
/* The block is the program's from here on, and until the other is called. */
void model_claim(const struct block *block);
void model_release(const struct block *block);
bool model_free(CUdeviceptr address); /* is nobody's, at this moment */
uint32_t model_id(void);

/* On the device, when the stream gets there. */
enum visit { FIRST_USE, USE, LAST_USE, NO_USE };
void visit(struct thread *t, enum visit what, const struct block *block, CUstream stream, atomic_bool *done);
/* The same as a node of a graph: the node's data, NULL if the capture is spoiled. It is freed … */
void *visit_node(struct thread *t, const struct block *block, CUstream stream);
/* … by the work of the stream, behind all that uses it. */
void visit_forget(struct thread *t, void *node, CUstream stream);

/* --- operations.c --- */

static inline uint64_t next_of(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline uint32_t draw(struct thread *t, uint32_t below) {
    return (uint32_t)((next_of(&t->random) >> 32) * below >> 32);
}

/* A call whose answer depends on what others do meanwhile: captures forbid much, and faults are planted in the driver. */
struct moment {
    uint64_t captures, faults;
};
struct moment moment(void);
bool captured_since(struct moment before);
bool faulted_since(struct moment before);
/* Whoever captures, or plants a fault, says so around it. */
void capture_is(bool under_way);
void fault_is(bool armed);

void must(int result, const char *call);
#define MUST(call) must((int)(call), #call)

void enter(struct thread *t, enum place place);
/* Work that `to` is given from now on comes after all that `from` has. */
void order(struct thread *t, int from, int to);
/* From now on the block is used there. */
void move(struct thread *t, struct block *block, int lane);
static inline struct block *any_block(struct thread *t) {
    return &t->blocks[draw(t, (uint32_t)soak.slots)];
}
int some_lane(struct thread *t, enum place place);
int any_lane(struct thread *t);

void allocate(struct thread *t, struct block *block);
void release(struct thread *t, struct block *block);
void burst(struct thread *t);
void use(struct thread *t, struct block *block);
/* Waits until the device has come past the block's last use, without a call of CUDA's. */
void wait_for_last_use(struct thread *t, struct block *block);

/* --- others.c --- */

void lane_operation(struct thread *t);
void context_operation(struct thread *t);
void context_end(struct thread *t);
void fault_operation(struct thread *t);
void fault_end(struct thread *t);
void question(struct thread *t);
void illegal(struct thread *t);
void capture(struct thread *t, void (*between)(struct thread *));
void hand_over(struct thread *t, struct block *block);
void shelf_clear(struct thread *t);

#endif
