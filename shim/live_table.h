/*
 * live_table.h: how the table of live allocations is made, so that an allocation's and a free's way through it can be compiled into their own.
 *
 * Linear probing over an array of keys with the records in a parallel array: a probe touches eight keys a cache line. A record that is taken out leaves its
 * key, as the next allocation at this address will most likely come soon; a new key may take the place of one that was left. Capacity is any number (a slot is
 * found by multiplying, not by masking), so big shards grow by an eighth and the whole stays below 64 bytes a live record.
 */
#ifndef CUPLUG_LIVE_TABLE_H
#define CUPLUG_LIVE_TABLE_H

#include "live.h"
#include "lock.h"

enum { CUPLUG_SHARD_BITS = 11, CUPLUG_SHARDS = 1 << CUPLUG_SHARD_BITS, CUPLUG_REGION_BITS = 18, CUPLUG_LEFT = 0xff /* as a record's backend: there is none */ };

/* The lock guards the arrays; memory is mapped and unmapped outside it. */
struct cuplug_shard {
    struct cuplug_brief_lock lock;
    uint32_t live, used, capacity; /* records; keys, those that were left, too; places */
    uint64_t *keys;                /* 0: free */
    struct cuplug_record *records;
} __attribute__((aligned(64)));

extern struct cuplug_shard cuplug_shards[CUPLUG_SHARDS] __attribute__((visibility("hidden")));

/* The upper bits of a product are the good ones. */
static inline uint32_t cuplug_shard_hash(uint64_t value) {
    return (uint32_t)(value * 0x9e3779b97f4a7c15u >> 32);
}

/* A region of memory has one shard: threads that allocate apart from each other need not meet in the table. */
static inline struct cuplug_shard *cuplug_shard_of(uint64_t pointer) {
    return &cuplug_shards[cuplug_shard_hash(pointer >> CUPLUG_REGION_BITS) >> (32 - CUPLUG_SHARD_BITS)];
}

/* Where the key would like to be: its hash scaled to the capacity. */
static inline uint32_t cuplug_shard_home(const struct cuplug_shard *shard, uint64_t pointer) {
    return (uint32_t)((uint64_t)cuplug_shard_hash(pointer) * shard->capacity >> 32);
}

static inline uint32_t cuplug_shard_next(const struct cuplug_shard *shard, uint32_t slot) {
    return slot + 1 == shard->capacity ? 0 : slot + 1;
}

/* The slot of `pointer`, or the free one that ends its probe. Only for a shard with capacity, which always has a free one. */
static inline uint32_t cuplug_shard_probe(const struct cuplug_shard *shard, uint64_t pointer) {
    uint32_t slot = cuplug_shard_home(shard, pointer);

    while (shard->keys[slot] && shard->keys[slot] != pointer)
        slot = cuplug_shard_next(shard, slot);
    return slot;
}

/* The record of `pointer`, NULL if there is none. The lock is held. */
static inline struct cuplug_record *cuplug_shard_find(const struct cuplug_shard *shard, uint64_t pointer) {
    uint32_t slot;

    if (!shard->live || !pointer)
        return NULL;
    slot = cuplug_shard_probe(shard, pointer);
    return shard->keys[slot] && shard->records[slot].backend != CUPLUG_LEFT ? &shard->records[slot] : NULL;
}

static inline void cuplug_shard_take_out(struct cuplug_shard *shard, struct cuplug_record *record) {
    record->backend = CUPLUG_LEFT;
    shard->live--;
}

/* A place for a record of `pointer`, which has its key then: where that is, else where another was left, else a free one. NULL: they would become too few. The
 * lock is held. */
static inline struct cuplug_record *cuplug_shard_place(struct cuplug_shard *shard, uint64_t pointer) {
    uint32_t slot, left = UINT32_MAX;

    if (!shard->capacity)
        return NULL;
    for (slot = cuplug_shard_home(shard, pointer); shard->keys[slot] != pointer; slot = cuplug_shard_next(shard, slot)) {
        if (!shard->keys[slot] && left != UINT32_MAX) {
            slot = left;
            break;
        }
        if (!shard->keys[slot]) {
            if (shard->used + 1 > shard->capacity - shard->capacity / 8)
                return NULL;
            shard->records[slot].backend = CUPLUG_LEFT;
            shard->used++;
            break;
        }
        if (shard->records[slot].backend == CUPLUG_LEFT && left == UINT32_MAX)
            left = slot;
    }
    shard->keys[slot] = pointer;
    return &shard->records[slot];
}

#endif
