/*
 * worker LIBRARY…: measures the allocators of these libraries (allocator.h) on device 0, as it is told on its standard input, a
 * line for each run:
 *
 *     PATTERN ALLOCATOR [NUMBER | FILE]…      pair now 65536
 *
 * and answers each with one line: key=value figures, times in nanoseconds, or "error: why". The first line it prints is "ready"
 * with the allocators' names. One run is short, so that whoever drives several workers can let them take turns; between runs a
 * worker does nothing.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ALLOCATORS = 16 };

CUcontext bench_context;
double bench_seconds = 0.005;

static const struct bench_allocator *allocators[ALLOCATORS];
static int allocator_count;

static void die(const char *what, const char *why) {
    fprintf(stderr, "worker: %s: %s\n", what, why);
    exit(1);
}

CUstream bench_stream(int number) {
    static CUstream streams[BENCH_STREAMS];
    if (!streams[number] && cuStreamCreate(&streams[number], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        die("stream", "cannot be made");
    return streams[number];
}

static void open_device(void) {
    CUdevice device;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&bench_context, device) != CUDA_SUCCESS || cuCtxSetCurrent(bench_context) != CUDA_SUCCESS)
        die("device 0", "cannot be used");
}

static void open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct bench_allocator *a = library ? dlsym(library, "bench_allocators") : NULL;
    if (!a)
        die(path, dlerror());
    for (; a->name && allocator_count < ALLOCATORS; a++) {
        allocators[allocator_count++] = a;
        if (a->trim)
            a->trim();
    }
}

static const struct bench_allocator *find_allocator(const char *name) {
    for (int i = 0; i < allocator_count; i++)
        if (strcmp(allocators[i]->name, name) == 0)
            return allocators[i];
    return NULL;
}

static bench_run *find_pattern(const char *name) {
    static const struct bench_pattern *const tables[] = {bench_pairs_patterns, bench_threads_patterns, bench_kernels_patterns,
                                                         bench_replay_patterns};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct bench_pattern *p = tables[t]; p->name; p++)
            if (strcmp(p->name, name) == 0)
                return p->run;
    return NULL;
}

static const char *obey(char *line) {
    struct bench_arguments arguments = {0};
    char *rest = line, *pattern = strsep(&rest, " "), *name = strsep(&rest, " "), *word, *end;
    bench_run *run = find_pattern(pattern);
    const struct bench_allocator *a = name ? find_allocator(name) : NULL;

    if (!run)
        return "no such pattern";
    if (!a)
        return "no such allocator";
    while ((word = strsep(&rest, " ")) != NULL) {
        long number = strtol(word, &end, 10);
        if (*end)
            arguments.text = word;
        else if (arguments.count < 4)
            arguments.number[arguments.count++] = number;
    }
    return run(a, &arguments);
}

int main(int argc, char **argv) {
    char line[4096];
    const char *seconds = getenv("BENCH_SECONDS");

    if (seconds)
        bench_seconds = atof(seconds);
    open_device();
    for (int i = 1; i < argc; i++)
        open_library(argv[i]);
    printf("ready");
    for (int i = 0; i < allocator_count; i++)
        printf(" %s", allocators[i]->name);
    printf("\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        const char *why;
        line[strcspn(line, "\n")] = '\0';
        why = obey(line);
        if (why)
            printf("error: %s", why);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
