/*
 * live.c: see live.h. Linear probing over an array of keys with the records in a parallel array: a probe touches eight keys a cache line.
 * Each shard's lock guards its arrays; memory is mapped and unmapped outside it. Capacity is any number (a slot is found by multiplying, not
 * by masking), so big shards grow by an eighth and the whole stays below 64 bytes a live record.
 */
#include "live.h"

#include "lock.h"
#include "pages.h"

#include <string.h>

enum { SHARDS = 2048, FIRST_CAPACITY = 32, DOUBLE_BELOW = 256, REGION_BITS = 18 };

struct shard {
    struct cuplug_brief_lock lock;
    uint32_t count, capacity;
    uint64_t *keys; /* 0: free */
    struct cuplug_record *records;
} __attribute__((aligned(64)));

static struct shard shards[SHARDS];

static uint64_t hash(uint64_t pointer) {
    uint64_t h = pointer * 0x9e3779b97f4a7c15u;

    return h ^ h >> 32;
}

/* A region of memory has one shard: threads that allocate apart from each other need not meet in the table. */
static struct shard *shard_of(uint64_t pointer) {
    return &shards[hash(pointer >> REGION_BITS) & (SHARDS - 1)];
}

/* Where `h` would like to be: the high half scaled to the capacity. */
static uint32_t home(uint64_t h, uint32_t capacity) {
    return (uint32_t)((h >> 32) * capacity >> 32);
}

static size_t bytes_for(uint32_t capacity) {
    return (size_t)capacity * (sizeof(uint64_t) + sizeof(struct cuplug_record));
}

/* The slot of `pointer`, or of the free slot that ends its probe. Only for a shard with a free slot. */
static uint32_t probe(const struct shard *shard, uint64_t pointer, uint64_t h) {
    uint32_t i = home(h, shard->capacity);

    while (shard->keys[i] && shard->keys[i] != pointer)
        i = i + 1 == shard->capacity ? 0 : i + 1;
    return i;
}

static bool full(const struct shard *shard) {
    return shard->count + 1 > shard->capacity - shard->capacity / 8 || shard->capacity == 0;
}

/* Gives the shard more room. The lock is held on entry and exit, but not while memory is mapped; the caller checks again. */
static __attribute__((noinline, cold)) bool grow(struct shard *shard) {
    uint32_t old_capacity = shard->capacity;
    uint32_t capacity = old_capacity == 0 ? FIRST_CAPACITY : old_capacity < DOUBLE_BELOW ? old_capacity * 2 : old_capacity + old_capacity / 8;
    struct shard old;
    uint64_t *keys;

    cuplug_brief_unlock(&shard->lock);
    keys = cuplug_pages_map(bytes_for(capacity));
    cuplug_brief_lock(&shard->lock);
    if (!keys)
        return false;
    if (shard->capacity != old_capacity) { /* another thread was faster */
        cuplug_brief_unlock(&shard->lock);
        cuplug_pages_unmap(keys, bytes_for(capacity));
        cuplug_brief_lock(&shard->lock);
        return true;
    }
    old = *shard;
    shard->keys = keys;
    shard->records = (struct cuplug_record *)(keys + capacity);
    shard->capacity = capacity;
    for (uint32_t i = 0; i < old.capacity; i++) {
        uint32_t slot;

        if (!old.keys[i])
            continue;
        slot = probe(shard, old.keys[i], hash(old.keys[i]));
        shard->keys[slot] = old.keys[i];
        shard->records[slot] = old.records[i];
    }
    cuplug_brief_unlock(&shard->lock);
    cuplug_pages_unmap(old.keys, bytes_for(old.capacity));
    cuplug_brief_lock(&shard->lock);
    return true;
}

/* Empties slot i and moves back whatever its hole would cut off from its home. */
static void erase(struct shard *shard, uint32_t i) {
    uint32_t j = i;

    for (;;) {
        uint32_t want, from_hole, from_home;

        j = j + 1 == shard->capacity ? 0 : j + 1;
        if (!shard->keys[j])
            break;
        want = home(hash(shard->keys[j]), shard->capacity);
        from_hole = j >= i ? j - i : j + shard->capacity - i;
        from_home = j >= want ? j - want : j + shard->capacity - want;
        if (from_home < from_hole)
            continue;
        shard->keys[i] = shard->keys[j];
        shard->records[i] = shard->records[j];
        i = j;
    }
    shard->keys[i] = 0;
    shard->count--;
}

enum cuplug_entered cuplug_live_insert(uint64_t pointer, const struct cuplug_record *record) {
    uint64_t h = hash(pointer);
    struct shard *shard = shard_of(pointer);
    enum cuplug_entered entered = CUPLUG_NO_MEMORY;
    uint32_t slot;

    cuplug_brief_lock(&shard->lock);
    while (full(shard))
        if (!grow(shard))
            goto out;
    slot = probe(shard, pointer, h);
    entered = CUPLUG_ALREADY_THERE;
    if (shard->keys[slot])
        goto out;
    shard->keys[slot] = pointer;
    shard->records[slot] = *record;
    shard->count++;
    entered = CUPLUG_ENTERED;
out:
    cuplug_brief_unlock(&shard->lock);
    return entered;
}

enum { KEEP = -2, REMOVE = -1 };

/* `spare`: KEEP, REMOVE, or the backend whose records alone stay and count as not there. */
static inline bool look(uint64_t pointer, struct cuplug_record *record, int spare) {
    uint64_t h = hash(pointer);
    struct shard *shard = shard_of(pointer);
    bool found = false;

    cuplug_brief_lock(&shard->lock);
    if (shard->count && pointer) {
        uint32_t slot = probe(shard, pointer, h);

        found = shard->keys[slot] == pointer && (spare < 0 || (int)shard->records[slot].backend != spare);
        if (found) {
            *record = shard->records[slot];
            if (spare != KEEP)
                erase(shard, slot);
        }
    }
    cuplug_brief_unlock(&shard->lock);
    return found;
}

bool cuplug_live_remove(uint64_t pointer, struct cuplug_record *record) {
    return look(pointer, record, REMOVE);
}

bool cuplug_live_remove_unless(uint64_t pointer, int backend, struct cuplug_record *record) {
    return look(pointer, record, backend);
}

bool cuplug_live_find(uint64_t pointer, struct cuplug_record *record) {
    return look(pointer, record, KEEP);
}

void cuplug_live_mark(uint64_t pointer, bool sync_memops) {
    uint64_t h = hash(pointer);
    struct shard *shard = shard_of(pointer);

    cuplug_brief_lock(&shard->lock);
    if (shard->count) {
        uint32_t slot = probe(shard, pointer, h);

        if (shard->keys[slot] == pointer)
            shard->records[slot].sync_memops = sync_memops;
    }
    cuplug_brief_unlock(&shard->lock);
}

void cuplug_live_drop_context(const struct cuplug_context *context, void (*lost)(const struct cuplug_record *record)) {
    for (int s = 0; s < SHARDS; s++) {
        struct shard *shard = &shards[s];

        cuplug_brief_lock(&shard->lock);
        for (uint32_t i = 0; i < shard->capacity;) {
            if (shard->keys[i] && shard->records[i].context == context) {
                lost(&shard->records[i]);
                erase(shard, i); /* may have moved another record here: look at i again */
            } else {
                i++;
            }
        }
        cuplug_brief_unlock(&shard->lock);
    }
}

size_t cuplug_live_count(void) {
    size_t count = 0;

    for (int s = 0; s < SHARDS; s++) {
        cuplug_brief_lock(&shards[s].lock);
        count += shards[s].count;
        cuplug_brief_unlock(&shards[s].lock);
    }
    return count;
}

size_t cuplug_live_footprint(void) {
    size_t bytes = sizeof shards;

    for (int s = 0; s < SHARDS; s++) {
        cuplug_brief_lock(&shards[s].lock);
        bytes += bytes_for(shards[s].capacity);
        cuplug_brief_unlock(&shards[s].lock);
    }
    return bytes;
}

void cuplug_live_reset(void) {
    memset(shards, 0, sizeof shards);
}
