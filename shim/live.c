/*
 * live.c: see live.h and live_table.h.
 */
#include "live_table.h"

#include "pages.h"

#include <string.h>

enum { FIRST_CAPACITY = 32, DOUBLE_BELOW = 256 };

struct cuplug_shard cuplug_shards[CUPLUG_SHARDS];

static size_t bytes_for(uint32_t capacity) {
    return (size_t)capacity * (sizeof(uint64_t) + sizeof(struct cuplug_record));
}

/* Empties slot i and moves back whatever its hole would cut off from its home. */
static void erase(struct cuplug_shard *shard, uint32_t i) {
    uint32_t j = i;

    for (;;) {
        uint32_t want, from_hole, from_home;

        j = cuplug_shard_next(shard, j);
        if (!shard->keys[j])
            break;
        want = cuplug_shard_home(shard, shard->keys[j]);
        from_hole = j >= i ? j - i : j + shard->capacity - i;
        from_home = j >= want ? j - want : j + shard->capacity - want;
        if (from_home < from_hole)
            continue;
        shard->keys[i] = shard->keys[j];
        shard->records[i] = shard->records[j];
        i = j;
    }
    shard->keys[i] = 0;
}

/* Forgets the keys that were left, if that makes room for a while. The lock is held. */
static bool forget_left(struct cuplug_shard *shard) {
    uint32_t capacity = shard->capacity, few = capacity < DOUBLE_BELOW ? capacity / 2 : capacity - capacity / 4;

    if (shard->live >= few)
        return false;
    for (uint32_t i = 0; i < capacity;)
        if (shard->keys[i] && shard->records[i].backend == CUPLUG_LEFT)
            erase(shard, i); /* which may have moved another here: look again */
        else
            i++;
    shard->used = shard->live;
    return true;
}

/* Makes room in the shard. The lock is held on entry and exit, but not all the time; the caller looks again. */
static __attribute__((noinline, cold)) bool grow(struct cuplug_shard *shard) {
    uint32_t old_capacity = shard->capacity;
    uint32_t capacity = old_capacity == 0 ? FIRST_CAPACITY : old_capacity < DOUBLE_BELOW ? old_capacity * 2 : old_capacity + old_capacity / 8;
    struct cuplug_shard old;
    uint64_t *keys;

    if (forget_left(shard))
        return true;
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
    shard->used = shard->live;
    for (uint32_t i = 0; i < old.capacity; i++) {
        uint32_t slot;

        if (!old.keys[i] || old.records[i].backend == CUPLUG_LEFT)
            continue;
        slot = cuplug_shard_probe(shard, old.keys[i]);
        shard->keys[slot] = old.keys[i];
        shard->records[slot] = old.records[i];
    }
    cuplug_brief_unlock(&shard->lock);
    cuplug_pages_unmap(old.keys, bytes_for(old.capacity));
    cuplug_brief_lock(&shard->lock);
    return true;
}

enum cuplug_entered cuplug_live_insert(uint64_t pointer, const struct cuplug_record *record) {
    struct cuplug_shard *shard = cuplug_shard_of(pointer);
    enum cuplug_entered entered = CUPLUG_NO_MEMORY;
    struct cuplug_record *place;

    if (!pointer) /* it would be a free place's key */
        return CUPLUG_NO_MEMORY;
    cuplug_brief_lock(&shard->lock);
    do
        place = cuplug_shard_place(shard, pointer);
    while (!place && grow(shard));
    if (place && place->backend != CUPLUG_LEFT) {
        entered = CUPLUG_ALREADY_THERE;
    } else if (place) {
        *place = *record;
        shard->live++;
        entered = CUPLUG_ENTERED;
    }
    cuplug_brief_unlock(&shard->lock);
    return entered;
}

enum { KEEP = -2, REMOVE = -1 };

/* `spare`: KEEP, REMOVE, or the backend whose records alone stay and count as not there. */
static inline bool look(uint64_t pointer, struct cuplug_record *copy, int spare) {
    struct cuplug_shard *shard = cuplug_shard_of(pointer);
    struct cuplug_record *record;

    cuplug_brief_lock(&shard->lock);
    record = cuplug_shard_find(shard, pointer);
    if (record && spare >= 0 && (int)record->backend == spare)
        record = NULL;
    if (record) {
        *copy = *record;
        if (spare != KEEP)
            cuplug_shard_take_out(shard, record);
    }
    cuplug_brief_unlock(&shard->lock);
    return record;
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
    struct cuplug_shard *shard = cuplug_shard_of(pointer);
    struct cuplug_record *record;

    cuplug_brief_lock(&shard->lock);
    record = cuplug_shard_find(shard, pointer);
    if (record)
        record->sync_memops = sync_memops;
    cuplug_brief_unlock(&shard->lock);
}

void cuplug_live_drop_context(const struct cuplug_context *context, void (*lost)(const struct cuplug_record *record)) {
    for (int s = 0; s < CUPLUG_SHARDS; s++) {
        struct cuplug_shard *shard = &cuplug_shards[s];

        cuplug_brief_lock(&shard->lock);
        for (uint32_t i = 0; i < shard->capacity; i++) {
            struct cuplug_record *record = &shard->records[i];

            if (!shard->keys[i] || record->backend == CUPLUG_LEFT || record->context != context)
                continue;
            lost(record);
            cuplug_shard_take_out(shard, record);
        }
        cuplug_brief_unlock(&shard->lock);
    }
}

void cuplug_live_each(void (*visit)(const struct cuplug_record *record, void *arg), void *arg) {
    for (int s = 0; s < CUPLUG_SHARDS; s++) {
        struct cuplug_shard *shard = &cuplug_shards[s];

        if (!cuplug_brief_lock_soon(&shard->lock))
            continue;
        for (uint32_t i = 0; i < shard->capacity; i++)
            if (shard->keys[i] && shard->records[i].backend != CUPLUG_LEFT)
                visit(&shard->records[i], arg);
        cuplug_brief_unlock(&shard->lock);
    }
}

size_t cuplug_live_count(void) {
    size_t count = 0;

    for (int s = 0; s < CUPLUG_SHARDS; s++) {
        cuplug_brief_lock(&cuplug_shards[s].lock);
        count += cuplug_shards[s].live;
        cuplug_brief_unlock(&cuplug_shards[s].lock);
    }
    return count;
}

size_t cuplug_live_footprint(void) {
    size_t bytes = sizeof cuplug_shards;

    for (int s = 0; s < CUPLUG_SHARDS; s++) {
        cuplug_brief_lock(&cuplug_shards[s].lock);
        bytes += bytes_for(cuplug_shards[s].capacity);
        cuplug_brief_unlock(&cuplug_shards[s].lock);
    }
    return bytes;
}

void cuplug_live_reset(void) {
    memset(cuplug_shards, 0, sizeof cuplug_shards);
}
