/*
 * The conformance program: conformance list | GROUP [FROM]. Prints the lines of one group; `tests/conformance/run` puts all
 * together.
 *
 * Each group has a process of its own, as some of them end their context or the driver.
 */
#include "conform.h"

/* name, remarks: "cases" are independent of one another, "alone" asks for more than there is, or looks at what is free,
 * "pair" wants two devices */
#define GROUPS(GROUP)                                                                                                            \
    GROUP(nulls, "cases")                                                                                                        \
    GROUP(sizes, "alone")                                                                                                        \
    GROUP(alignment, "")                                                                                                         \
    GROUP(pitches, "alone")                                                                                                      \
    GROUP(pairs, "")                                                                                                             \
    GROUP(interiors, "")                                                                                                         \
    GROUP(foreign, "")                                                                                                           \
    GROUP(last_error, "")                                                                                                        \
    GROUP(attributes, "")                                                                                                        \
    GROUP(plural, "")                                                                                                            \
    GROUP(runtime_attributes, "")                                                                                                \
    GROUP(identity, "")                                                                                                          \
    GROUP(ranges, "")                                                                                                            \
    GROUP(memory_info, "alone")                                                                                                  \
    GROUP(uninitialised, "cases")                                                                                                \
    GROUP(first_free, "")                                                                                                        \
    GROUP(first_malloc_zero, "")                                                                                                 \
    GROUP(first_malloc_null, "")                                                                                                 \
    GROUP(first_pointer_query, "")                                                                                               \
    GROUP(no_context, "")                                                                                                        \
    GROUP(other_context, "")                                                                                                     \
    GROUP(contexts_order, "")                                                                                                    \
    GROUP(context_destroyed, "")                                                                                                 \
    GROUP(context_pending, "")                                                                                                   \
    GROUP(attached, "")                                                                                                          \
    GROUP(reset, "")                                                                                                             \
    GROUP(primary_reset, "")                                                                                                     \
    GROUP(primary_released, "")                                                                                                  \
    GROUP(primary_state, "")                                                                                                     \
    GROUP(primary_counted, "")                                                                                                   \
    GROUP(green, "")                                                                                                             \
    GROUP(green_order, "")                                                                                                       \
    GROUP(green_destroyed, "")                                                                                                   \
    GROUP(green_alone, "")                                                                                                       \
    GROUP(forked, "")                                                                                                            \
    GROUP(capture_own, "")                                                                                                       \
    GROUP(capture_thread, "")                                                                                                    \
    GROUP(capture_implicit, "")                                                                                                  \
    GROUP(capture_to_graph_own, "")                                                                                              \
    GROUP(capture_to_graph_thread, "")                                                                                           \
    GROUP(capture_into, "")                                                                                                      \
    GROUP(capture_forked, "")                                                                                                    \
    GROUP(graph_memory, "")                                                                                                      \
    GROUP(graph_launches, "")                                                                                                    \
    GROUP(graph_copies, "")                                                                                                      \
    GROUP(graph_beside, "")                                                                                                      \
    GROUP(graph_outlives, "")                                                                                                    \
    GROUP(graph_auto_free, "")                                                                                                   \
    GROUP(waits, "")                                                                                                             \
    GROUP(order, "")                                                                                                             \
    GROUP(streams, "")                                                                                                           \
    GROUP(pools, "")                                                                                                             \
    GROUP(own_pools, "")                                                                                                         \
    GROUP(ipc, "")                                                                                                               \
    GROUP(virtual_memory, "")                                                                                                    \
    GROUP(arrays, "")                                                                                                            \
    GROUP(two_only_second, "pair")                                                                                               \
    GROUP(two_attributes, "pair")                                                                                                \
    GROUP(two_frees, "pair")                                                                                                     \
    GROUP(two_streams, "pair")                                                                                                   \
    GROUP(two_reset, "pair")                                                                                                     \
    GROUP(two_peer_codes, "pair")                                                                                                \
    GROUP(two_peer_memory, "pair")                                                                                               \
    GROUP(two_waits, "pair")                                                                                                     \
    GROUP(two_order, "pair")                                                                                                     \
    GROUP(sticky, "")

#define GROUP(name, remarks) void group_##name(void);
GROUPS(GROUP)
#undef GROUP

void ipc_child(const char *handle);

static const struct {
    const char *name;
    void (*run)(void);
    const char *remarks;
} groups[] = {
#define GROUP(name, remarks) {#name, group_##name, remarks},
    GROUPS(GROUP)
#undef GROUP
};

static const char *group = "";
static int from, seen;
static bool open_line;

void begin(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%s/", group);
    vprintf(format, args);
    putchar(':');
    fflush(stdout);
    va_end(args);
    open_line = true;
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    putchar(' ');
    vprintf(format, args);
    va_end(args);
}

void end(void) {
    putchar('\n');
    fflush(stdout);
    open_line = false;
}

void line(const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    begin("%s", name);
    putchar(' ');
    vprintf(format, args);
    end();
    va_end(args);
}

bool wanted(void) {
    return seen++ >= from;
}

static void __attribute__((noreturn)) give_up(const char *what, const char *error) {
    if (open_line)
        end();
    printf("%s/gave-up: %s: %s\n", group, what, error);
    fflush(stdout);
    _exit(0);
}

void need(cudaError_t error, const char *what) {
    if (error != cudaSuccess)
        give_up(what, rt(error));
}

void need_driver(CUresult error, const char *what) {
    if (error != CUDA_SUCCESS)
        give_up(what, cu(error));
}

const char *rt(cudaError_t error) {
    return cudaGetErrorName(error);
}

const char *cu(CUresult error) {
    const char *name = NULL;
    return cuGetErrorName(error, &name) == CUDA_SUCCESS && name ? name : "unnamed";
}

const char *last(cudaError_t error) {
    static char text[200];
    cudaError_t peeked = cudaPeekAtLastError(), first = cudaGetLastError(), again = cudaGetLastError();
    if (peeked != first || again != cudaSuccess)
        snprintf(text, sizeof text, "last=%s,%s,%s", rt(peeked), rt(first), rt(again));
    else
        snprintf(text, sizeof text, "last=%s", first == cudaSuccess ? "none" : first == error ? "same" : rt(first));
    return text;
}

void say_rt(cudaError_t error) {
    say("%s %s", rt(error), last(error));
}

void say_cu(CUresult error) {
    const char *pending = last(cudaSuccess);
    say("%s", cu(error));
    if (strcmp(pending, "last=none") != 0)
        say("%s", pending);
}

const char *pointer(const void *p) {
    return !p ? "null" : p == KEPT ? "kept" : "set";
}

const char *versus(const void *p, const void *expected) {
    return !p ? "null" : p == expected ? "same" : p == KEPT ? "kept" : "other";
}

struct errand {
    void (*body)(void *);
    void *argument;
};

static void *run_errand(void *errand) {
    ((struct errand *)errand)->body(((struct errand *)errand)->argument);
    return NULL;
}

void in_thread(void (*body)(void *), void *argument) {
    struct errand errand = {body, argument};
    pthread_t thread;
    start_thread(&thread, run_errand, &errand);
    pthread_join(thread, NULL);
}

/* The groups in their order; those that cannot be run with this driver's devices are said to be lacking. */
static void list(void) {
    int devices = 0;
    bool two = cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices >= 2;
    for (size_t i = 0; i < COUNT_OF(groups); i++)
        printf("%s %s%s\n", groups[i].name, groups[i].remarks, strcmp(groups[i].remarks, "pair") == 0 && !two ? " lacking" : "");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "ipc-child") == 0) {
        ipc_child(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < COUNT_OF(groups); i++) {
        if (strcmp(argv[1], groups[i].name) == 0) {
            group = groups[i].name;
            from = argc > 2 ? atoi(argv[2]) : 0;
            groups[i].run();
            return 0;
        }
    }
    die("usage: conformance list | GROUP [FROM]");
}
