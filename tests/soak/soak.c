/*
 * The soak: random operations of many threads against a model of what they must come to (soak.h). In rounds: at the end of each
 * the threads end, everything is freed, by the threads or after them, and the library's figures and the driver's memory must be
 * what they were.
 *
 *     soak OPERATIONS THREADS SEED [contexts=1|2|3] [captures=0|1] [faults=0|1] [slow=0|1|2] [foreign=0|1]
 *          [slots=COUNT] [largest=BYTES] [round=OPERATIONS] [room=BYTES]
 *
 * contexts: the primary one; one that all threads share; one of each thread's own, which comes and goes. slow: some work takes
 * its time, with 2 much. foreign: blocks are freed in the order of other contexts' streams, too. slots: how many blocks each
 * thread may have. room: what the device, or the arena, has; then an allocation that must find memory is not allowed to fail (1
 * thread, 1 context). All are on by default. With one thread the operations of a seed are always the same; what the device has
 * done by when is not.
 */
#include "soak.h"

#include "shim/cuplug.h"

#include <sched.h>

size_t simcuda_used(int device);

static uint64_t per_round = 100000;
static bool leave; /* the threads end with blocks of theirs live, which are freed after them */
static struct thread threads[MOST_THREADS];
static uint64_t from, to; /* the round's operations, each thread's */

/* Numbers of this operation's own, so that what another one came to does not change it. */
static void begin(struct thread *t, uint64_t operation) {
    t->operation = operation;
    t->random = soak.seed * 0x9e3779b97f4a7c15u + (uint64_t)t->number * 0xd1342543de82ef95u + operation * 0xaf251af3b0f025b5u;
    next_of(&t->random);
    at(t->number, operation);
}

static void on_a_block(struct thread *t) {
    struct block *block = any_block(t);

    if (block->pinned)
        return;
    if (!block->address)
        allocate(t, block);
    else if (draw(t, 4) == 0)
        use(t, block);
    else
        release(t, block);
}

static void operate(struct thread *t) {
    uint32_t what = draw(t, 4096);

    if (t->armed_until && t->operation >= t->armed_until)
        fault_end(t);
    if (what < 3660)
        on_a_block(t);
    else if (what < 3700)
        burst(t);
    else if (what < 3840)
        hand_over(t, any_block(t));
    else if (what < 3980)
        lane_operation(t);
    else if (what < 4040)
        question(t);
    else if (what < 4080)
        illegal(t);
    else if (what < 4086)
        capture(t, on_a_block);
    else if (what < 4091)
        context_operation(t);
    else
        fault_operation(t);
}

static void prepare(struct thread *t) {
    t->current = -1;
    t->own = NULL;
    memset(t->mark, 0, sizeof t->mark);
    memset(t->lanes, 0, sizeof t->lanes);
    for (int i = 0; i < 2 * CONTEXTS; i++)
        t->lanes[i] = (struct lane){i % 2 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, (enum place)(i / 2),
                                    i / 2 < soak.contexts && i / 2 != OWN};
}

/* Every stream and event goes; blocks that stay are used by nobody any more. */
static void end(struct thread *t) {
    fault_end(t);
    context_end(t);
    for (int i = 0; i < SLOTS; i++) {
        if (leave && t->blocks[i].address)
            wait_for_last_use(t, &t->blocks[i]);
        while (!leave && t->blocks[i].address)
            release(t, &t->blocks[i]);
    }
    for (int i = 2 * CONTEXTS; i < LANES; i++) {
        if (t->lanes[i].there) {
            enter(t, t->lanes[i].place);
            MUST(cuStreamDestroy(t->lanes[i].stream));
        }
    }
    for (int i = 0; i < CONTEXTS; i++)
        if (t->mark[i])
            MUST(cuEventDestroy(t->mark[i]));
    while (atomic_load(&t->queued))
        sched_yield();
}

static void *run(void *argument) {
    struct thread *t = argument;

    prepare(t);
    for (uint64_t operation = from; operation < to; operation++) {
        begin(t, operation);
        operate(t);
    }
    begin(t, to);
    end(t);
    return NULL;
}

/* --- the end of a round --- */

static long long figure(const char *name) {
    long long value = -1;

    if (cuplug_get_stat(name, -1, &value) != 0)
        wrong("no figure %s", name);
    return value;
}

static void check(const char *name, uint64_t least, uint64_t most) {
    long long value = figure(name);

    if (value < (long long)least || value > (long long)most)
        wrong("the library says %s=%lld, the model %llu to %llu", name, value, (unsigned long long)least,
              (unsigned long long)most);
}

static void check_figures(void) {
    check("allocations", tally.allocations, tally.allocations);
    check("frees", tally.frees, tally.frees);
    check("lost_blocks", tally.lost, tally.lost);
    check("failed", tally.out_of_memory, tally.out_of_memory + tally.other_failures);
    check("live_blocks", 0, 0);
    check("live_bytes", 0, 0);
}

/* When all is free, much must be to be had at once. */
static void check_largest(size_t size) {
    CUdeviceptr all;
    CUresult result = cuMemAlloc(&all, size);

    if (result != CUDA_SUCCESS)
        wrong("bytes are lost: all is free, but %zu bytes cannot be had at once: error %d", size, (int)result);
    MUST(cuMemFree(all));
    tally.allocations++;
    tally.frees++;
}

static void trim(void) {
    long long given = soak.backend ? cuplug_trim(0) : 0;

    if (given < 0)
        wrong("cuplug_trim(0): %lld", given);
}

static void check_memory(void) {
    size_t used, total, kept = 0;
    CUmemoryPool pool;

    MUST(cuDeviceTotalMem(&total, 0));
    if (soak.backend && strcmp(soak.backend, "arena") == 0) {
        kept = (size_t)figure("reserved_bytes");
        if (soak.contexts == 1)
            check_largest(kept);
    } else {
        check_largest(total / 4 * 3);
        trim();
        if (soak.backend && figure("reserved_bytes") != 0)
            wrong("bytes are lost: %lld are reserved when all is free and given back", figure("reserved_bytes"));
    }
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuDeviceGraphMemTrim(0));
    used = simcuda_used(0);
    if (used != soak.used_before + kept)
        wrong("bytes are lost: the driver has given out %zu, at first %zu, and the library keeps %zu", used, soak.used_before,
              kept);
}

/* The rest is this thread's to free, with streams of its own. */
static void clear(struct thread *t) {
    prepare(t);
    shelf_clear(t);
    for (int i = 0; i < soak.threads; i++) {
        for (int k = 0; k < SLOTS; k++) {
            struct block *block = &threads[i].blocks[k];

            if (!block->address)
                continue;
            block->lane = 2 * (int)block->place;
            while (block->address)
                release(t, block);
        }
    }
    for (int i = soak.contexts > 1; i >= 0; i--) {
        enter(t, (enum place)i);
        MUST(cuCtxSynchronize());
        if (t->mark[i])
            MUST(cuEventDestroy(t->mark[i]));
    }
}

static void audit(void) {
    static struct thread self;

    self.number = soak.threads;
    begin(&self, to);
    clear(&self);
    while (atomic_load(&self.queued))
        sched_yield();
    if (soak.backend)
        check_figures();
    check_memory();
}

static void round_of(uint64_t operations) {
    pthread_t handles[MOST_THREADS];

    from = to;
    to += operations / (uint64_t)soak.threads;
    for (int i = 0; i < soak.threads; i++) {
        threads[i].number = i;
        start_thread(&handles[i], run, &threads[i]);
    }
    for (int i = 0; i < soak.threads; i++)
        pthread_join(handles[i], NULL);
    audit();
    leave = !leave;
}

/* --- the whole --- */

static void option(const char *text) {
    const char *value = strchr(text, '=');
    unsigned long long number = value ? strtoull(value + 1, NULL, 10) : 0;
    size_t length = value ? (size_t)(value - text) : strlen(text);

#define IS(name) (length == sizeof(name) - 1 && memcmp(text, name, length) == 0)
    if (IS("contexts") && number >= 1 && number <= CONTEXTS)
        soak.contexts = (int)number;
    else if (IS("captures"))
        soak.captures = number;
    else if (IS("faults"))
        soak.faults = number;
    else if (IS("slow"))
        soak.slow = (int)number;
    else if (IS("foreign"))
        soak.foreign = number;
    else if (IS("slots") && number && number <= SLOTS)
        soak.slots = (int)number;
    else if (IS("largest") && number)
        soak.largest = number;
    else if (IS("round") && number)
        per_round = number;
    else if (IS("room"))
        soak.room = number;
    else
        die("soak: what is %s?", text);
#undef IS
}

static void start(void) {
    CUdevice device;

    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&soak.context[PRIMARY], device));
    if (soak.contexts > 1)
        MUST(cuCtxCreate(&soak.context[SHARED], NULL, 0, device));
    MUST(cuCtxSetCurrent(soak.context[PRIMARY]));
    soak.backend = cuplug_get_backend ? cuplug_get_backend() : NULL;
    soak.used_before = simcuda_used(0);
}

int main(int argc, char **argv) {
    uint64_t done = 0;

    if (argc < 4)
        die("soak OPERATIONS THREADS SEED [option=value...]");
    soak = (struct soak){
        .contexts = CONTEXTS, .captures = true, .faults = true, .slow = 1, .foreign = true, .slots = SLOTS, .largest = 64 * MIB};
    soak.operations = strtoull(argv[1], NULL, 10);
    soak.threads = atoi(argv[2]);
    soak.seed = strtoull(argv[3], NULL, 10);
    if (!soak.operations || soak.threads < 1 || soak.threads > MOST_THREADS)
        die("soak: so many operations, so many threads?");
    for (int i = 4; i < argc; i++)
        option(argv[i]);
    model_init();
    start();
    while (done < soak.operations) {
        uint64_t part = soak.operations - done < per_round ? soak.operations - done : per_round;

        round_of(part);
        done += part;
    }
    printf("%llu operations under %s: %llu allocations, %llu frees, %llu lost with a context, %llu out of memory, %llu handed "
           "over, %llu captures, "
           "%llu contexts, %llu faults, %llu mistakes, %lld fences, %lld device waits, %lld host waits; nothing wrong\n",
           (unsigned long long)done, soak.backend ? soak.backend : "none", (unsigned long long)tally.allocations,
           (unsigned long long)tally.frees, (unsigned long long)tally.lost, (unsigned long long)tally.out_of_memory,
           (unsigned long long)tally.handed, (unsigned long long)tally.captured, (unsigned long long)tally.contexts,
           (unsigned long long)tally.faults, (unsigned long long)tally.refused, soak.backend ? figure("fences") : 0,
           soak.backend ? figure("waits") : 0, soak.backend ? figure("host_waits") : 0);
    return 0;
}
