/*
 * Runs short of device memory. "retry": everything freed before must be available to one large request, and the success must
 * leave no error behind. "real": a request nobody can serve fails once, with one pending error. "earlier": an error the program
 * has not read yet survives a success. "async": as retry, in stream order. "exhaust": takes all there is, piece by piece, and
 * gives it back. "managed": managed memory of the program's own after few frees. Run with SIMCUDA_MEMORY=256M (all but "real").
 *
 * Each asks from a place in the program that allocated before and from one that is new, as a call may be served before it reaches
 * the runtime or not.
 */
#include "runtime.h"

#define PIECE (20 * MIB)
#define LARGE (200 * MIB)

/* One place for many calls. Not by a jump, which would make it the caller's place. */
static __attribute__((noinline)) cudaError_t take(void **memory, size_t size) {
    cudaError_t error = cudaMalloc(memory, size);
    __asm__ volatile("");
    return error;
}

static __attribute__((noinline)) cudaError_t take_async(void **memory, size_t size, cudaStream_t stream) {
    cudaError_t error = cudaMallocAsync(memory, size, stream);
    __asm__ volatile("");
    return error;
}

static void fill_and_free(void) {
    void *pieces[9];
    for (size_t i = 0; i < COUNT_OF(pieces); i++)
        RT(take(&pieces[i], PIECE));
    for (size_t i = 0; i < COUNT_OF(pieces); i++)
        RT(cudaFree(pieces[i]));
}

static void show(const char *what, cudaError_t error, const void *memory) {
    printf("%s: %s, pointer %s, pending %s\n", what, cudaGetErrorName(error), memory ? "set" : "NULL",
           cudaGetErrorName(cudaPeekAtLastError()));
}

static void use(void *large, const char *freed) {
    printf("wrong bytes: %zu\n", cudaMemset(large, 7, LARGE) ? LARGE : wrong_on_device(large, 7, LARGE));
    show(freed, cudaFree(large), NULL);
}

static void retry(void) {
    void *large = NULL;
    cudaError_t error;
    fill_and_free();
    error = take(&large, LARGE);
    show("large", error, large);
    use(large, "large freed");
    fill_and_free();
    error = cudaMalloc(&large, LARGE);
    show("large from a new place", error, large);
    use(large, "freed again");
}

static void retry_async(void) {
    void *large = NULL;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaError_t error;
    RT(take_async(&large, 4096, stream));
    RT(cudaFreeAsync(large, stream));
    for (int round = 0; round < 2; round++) {
        fill_and_free();
        error = round ? cudaMallocAsync(&large, LARGE, stream) : take_async(&large, LARGE, stream);
        show(round ? "large from a new place" : "large", error, large);
        RT(cudaMemsetAsync(large, 7, LARGE, stream));
        printf("wrong bytes: %zu\n", wrong_on_device(large, 7, LARGE));
        show("large freed", cudaFreeAsync(large, stream), NULL);
        RT(cudaStreamSynchronize(stream));
        error = cudaMalloc(&large, LARGE);
        show("plain again", error, large);
        RT(cudaFree(large));
    }
}

static void show_pending(void) {
    printf("first read: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("second read: %s\n", cudaGetErrorName(cudaGetLastError()));
}

static void real(void) {
    void *memory = (void *)0x7, *small;
    cudaError_t error;
    RT(take(&small, 4096));
    for (int round = 0; round < 2; round++) { /* the second finds every place known */
        memory = (void *)0x7;
        error = cudaMalloc(&memory, (size_t)1 << 48);
        show("too much", error, memory);
        show_pending();
        memory = (void *)0x7;
        error = cudaMallocAsync(&memory, (size_t)1 << 48, 0);
        show("too much async", error, memory);
        show_pending();
    }
    error = take(&memory, 4096);
    show("small", error, memory);
    printf("distinct: %s\n", yes_no(memory != small));
}

static void earlier(void) {
    void *large = NULL;
    cudaError_t error;
    for (int round = 0; round < 2; round++) {
        fill_and_free();
        cudaMemcpy(NULL, NULL, 1, (enum cudaMemcpyKind)99);
        error = round ? cudaMalloc(&large, LARGE) : take(&large, LARGE);
        show(round ? "earlier error, then large from a new place" : "earlier error, then large", error, large);
        printf("the first to be read is the earlier one:\n");
        show_pending();
        RT(cudaFree(large));
    }
}

static void exhaust(void) {
    static void *pieces[4096];
    for (int round = 0; round < 2; round++) {
        size_t count = 0;
        while (count < COUNT_OF(pieces) && take(&pieces[count], PIECE) == cudaSuccess)
            count++;
        printf("got at least half: %s\n", yes_no(count * PIECE >= 128 * MIB));
        show("then", cudaMalloc(&pieces[count], PIECE), NULL);
        show_pending();
        while (count-- > 0)
            RT(cudaFree(pieces[count]));
    }
}

static void managed(void) {
    void *memory = NULL;
    RT(cudaMalloc(&memory, 12 * MIB));
    RT(cudaFree(memory));
    cudaError_t error = cudaMallocManaged(&memory, 100 * MIB, cudaMemAttachGlobal);
    show("managed", error, memory);
    show("managed freed", cudaFree(memory), NULL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"retry", retry},     {"async", retry_async}, {"real", real},
                 {"earlier", earlier}, {"exhaust", exhaust},   {"managed", managed}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    return 0;
}
