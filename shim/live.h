/*
 * live.h: the table of live allocations: open addressing in shards, one small lock a shard.
 *
 * Whoever removes a record owns the free: a second free finds nothing, and an address that another thread has just been given again is never
 * mistaken for the old one. NULL is never entered.
 */
#ifndef CUPLUG_LIVE_H
#define CUPLUG_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuplug_context;

/* One live allocation: 40 bytes, 48 with the pointer that is its key. */
struct cuplug_record {
    union {
        struct {
            uint64_t size : 48; /* bytes */
            uint64_t kind : 8;  /* enum cuplug_kind */
            uint64_t backend : 8;
        };
        uint64_t what;
    };
    void *cookie; /* the backend's own */
    struct cuplug_context *context;
    uint64_t stream;        /* identity of the stream it was allocated on, 0 if none */
    union {
        struct {
            uint64_t sequence : 56; /* its number: no other allocation of the process has or had it */
            uint64_t device : 7;
            uint64_t sync_memops : 1; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as the program set it */
        };
        uint64_t which;
    };
};

/* The same in one store: a part that is read soon after it was written in two is waited for. */
static inline uint64_t cuplug_record_what(uint64_t size, unsigned kind, int backend) {
    return size | (uint64_t)kind << 48 | (uint64_t)backend << 56;
}

static inline uint64_t cuplug_record_which(uint64_t sequence, int device) {
    return sequence | (uint64_t)device << 56;
}

/* What entering a record came to. */
enum cuplug_entered { CUPLUG_ENTERED, CUPLUG_ALREADY_THERE, CUPLUG_NO_MEMORY };

/* Enters a record; one that is already there stays. */
enum cuplug_entered cuplug_live_insert(uint64_t pointer, const struct cuplug_record *record);

/* Takes the record of `pointer` out, into *record. False if there is none. */
bool cuplug_live_remove(uint64_t pointer, struct cuplug_record *record);

/* … unless it is this backend's. */
bool cuplug_live_remove_unless(uint64_t pointer, int backend, struct cuplug_record *record);

/* Copies the record of `pointer`. */
bool cuplug_live_find(uint64_t pointer, struct cuplug_record *record);

/* Sets its sync_memops. */
void cuplug_live_mark(uint64_t pointer, bool sync_memops);

/* Takes out every record of `context` and calls `lost` for each, under a shard's lock: it may only count. */
void cuplug_live_drop_context(const struct cuplug_context *context, void (*lost)(const struct cuplug_record *record));

/* Calls `visit` for each record, under a shard's lock: it may only count. Leaves out what stays locked for long. */
void cuplug_live_each(void (*visit)(const struct cuplug_record *record, void *arg), void *arg);

size_t cuplug_live_count(void);
/* Bytes of memory the table takes itself. */
size_t cuplug_live_footprint(void);

/* In a forked child whose parent had other threads: every lock free, no record. */
void cuplug_live_reset(void);

#endif
