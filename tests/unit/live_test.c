/*
 * live_test.c: the table of live allocations against a plain array, under 16 threads, and at ten million records. A user would lose: frees that go to
 * the wrong owner, double frees unnoticed, memory.
 */
#include "shim/live.h"

#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct cuplug_record record_of(uint64_t pointer, uint64_t salt) {
    return (struct cuplug_record){
        .size = (pointer ^ salt) & 0xffffffffffff,
        .kind = pointer % 3,
        .backend = pointer % 5,
        .cookie = (void *)(pointer + salt),
        .stream = salt,
        .sequence = (pointer + salt) & 0xffffffffff,
        .device = pointer % 7,
    };
}

static bool same(const struct cuplug_record *a, const struct cuplug_record *b) {
    return a->size == b->size && a->kind == b->kind && a->backend == b->backend && a->cookie == b->cookie && a->context == b->context &&
           a->stream == b->stream && a->sequence == b->sequence && a->device == b->device;
}

/* Every operation gives what the array says, over many grows and with clustered pointers (neighbours at 512 bytes, as the driver's). */
static void agrees_with_a_plain_array(void) {
    enum { POINTERS = 20000, STEPS = 1000000 };
    static uint64_t salt[POINTERS]; /* 0: not live */
    struct cuplug_record got, want;
    uint64_t seed = 1;
    size_t live = 0;

    for (int step = 0; step < STEPS; step++) {
        uint64_t i = unit_random(&seed) % POINTERS, pointer = 0x7f0000000000 + i * 512;

        switch (unit_random(&seed) % 3) {
        case 0:
            want = record_of(pointer, (uint64_t)step + 1);
            CHECK(cuplug_live_insert(pointer, &want) == (salt[i] ? CUPLUG_ALREADY_THERE : CUPLUG_ENTERED)); /* an entry that is there stays as it was */
            if (!salt[i]) {
                salt[i] = (uint64_t)step + 1;
                live++;
            }
            break;
        case 1:
            CHECK(cuplug_live_remove(pointer, &got) == (salt[i] != 0));
            if (salt[i]) {
                want = record_of(pointer, salt[i]);
                CHECK(same(&got, &want));
                salt[i] = 0;
                live--;
            }
            break;
        default:
            CHECK(cuplug_live_find(pointer, &got) == (salt[i] != 0));
            want = record_of(pointer, salt[i]);
            CHECK(!salt[i] || same(&got, &want));
        }
    }
    CHECK(cuplug_live_count() == live);
    for (uint64_t i = 0; i < POINTERS; i++)
        CHECK(cuplug_live_remove(0x7f0000000000 + i * 512, &got) == (salt[i] != 0));
    CHECK(cuplug_live_count() == 0);
}

/* One live record after another, each at another address: the table stays as small as it was. */
static void addresses_that_were_used_take_no_room(void) {
    struct cuplug_record record = record_of(0x1000, 1), got;
    size_t before = 0;

    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t pointer = 0x7e0000000000 + i % 512 * 512; /* of one shard */

        CHECK(cuplug_live_insert(pointer, &record) == CUPLUG_ENTERED);
        CHECK(cuplug_live_remove(pointer, &got));
        if (i == 0)
            before = cuplug_live_footprint();
    }
    CHECK(cuplug_live_footprint() == before);
    CHECK(cuplug_live_count() == 0);
}

static void null_is_never_there(void) {
    struct cuplug_record got;

    CHECK(!cuplug_live_find(0, &got));
    CHECK(!cuplug_live_remove(0, &got));
}

static int lost_count;

static void count_lost(const struct cuplug_record *record) {
    (void)record;
    lost_count++;
}

static void a_context_takes_its_records_along_and_no_others(void) {
    struct cuplug_context *dying = (struct cuplug_context *)0x10, *living = (struct cuplug_context *)0x20;
    struct cuplug_record record, got;

    for (uint64_t i = 1; i <= 30000; i++) {
        record = record_of(i * 512, i);
        record.context = i % 3 ? living : dying;
        CHECK(cuplug_live_insert(i * 512, &record) == CUPLUG_ENTERED);
    }
    cuplug_live_drop_context(dying, count_lost);
    CHECK(lost_count == 10000);
    for (uint64_t i = 1; i <= 30000; i++)
        CHECK(cuplug_live_remove(i * 512, &got) == (i % 3 != 0));
}

enum { THREADS = 16, ROUNDS = 200000, SHARED = 64 };
static _Atomic int owners[SHARED];
static _Atomic int faults;

/* Threads insert and remove their own pointers and race for shared ones: every insertion is removed once, by one thread, as it was entered. */
static void *churn(void *arg) {
    uint64_t me = (uint64_t)(uintptr_t)arg, seed = me + 7, own = 0;
    struct cuplug_record record, got;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t shared = unit_random(&seed) % SHARED, pointer = 0x1000 + shared * 512;

        record = record_of(pointer, me);
        if (unit_random(&seed) & 1) {
            if (cuplug_live_insert(pointer, &record) == CUPLUG_ENTERED)
                owners[shared]++;
        } else if (cuplug_live_find(pointer, &got)) {
            if (cuplug_live_remove(pointer, &got)) {
                uint64_t salt = got.stream;
                struct cuplug_record want = record_of(pointer, salt);

                if (!same(&got, &want))
                    faults++;
                owners[shared]--;
            }
        }
        pointer = 0x100000000 + (me << 40) + own * 512;
        record = record_of(pointer, own);
        if (cuplug_live_insert(pointer, &record) != CUPLUG_ENTERED)
            faults++;
        if (own++ % 4 == 3)
            for (uint64_t k = own - 4; k < own; k++)
                if (!cuplug_live_remove(0x100000000 + (me << 40) + k * 512, &got) || got.cookie != (void *)(0x100000000 + (me << 40) + k * 512 + k))
                    faults++;
    }
    return NULL;
}

static void sixteen_threads_lose_and_duplicate_nothing(void) {
    pthread_t threads[THREADS];
    struct cuplug_record got;

    for (uint64_t t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, churn, (void *)(uintptr_t)(t + 1));
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (uint64_t s = 0; s < SHARED; s++) {
        bool there = cuplug_live_remove(0x1000 + s * 512, &got);

        CHECK(owners[s] == there); /* as many inserted as removed, but for the one still there */
    }
    CHECK(faults == 0);
    CHECK(cuplug_live_count() == 0);
}

static void ten_million_records_take_at_most_64_bytes_each(void) {
    enum { MANY = 10000000 };
    struct cuplug_record record, got;

    for (uint64_t i = 1; i <= MANY; i++) {
        record = record_of(i * 512, i);
        CHECK(cuplug_live_insert(i * 512, &record) == CUPLUG_ENTERED);
    }
    CHECK(cuplug_live_count() == MANY);
    printf("# %.1f bytes a record\n", (double)cuplug_live_footprint() / MANY);
    CHECK(cuplug_live_footprint() <= 64ul * MANY);
    for (uint64_t i = 1; i <= MANY; i++)
        CHECK(cuplug_live_remove(i * 512, &got) && got.stream == i);
    CHECK(cuplug_live_count() == 0);
}

int main(void) {
    RUN(agrees_with_a_plain_array);
    RUN(addresses_that_were_used_take_no_room);
    RUN(null_is_never_there);
    RUN(a_context_takes_its_records_along_and_no_others);
    RUN(sixteen_threads_lose_and_duplicate_nothing);
    RUN(ten_million_records_take_at_most_64_bytes_each);
    return 0;
}
