/*
 * Two processes share device memory by CUDA IPC. The exporter allocates blocks of many sizes, so that most of them do not begin where the driver's own
 * allocation would, and hands them to an importer, which reads, writes, opens twice, closes, and keeps one while the exporter frees it.
 *
 *     ipc [PRELOAD]     PRELOAD: the importer's LD_PRELOAD instead of the exporter's own, perhaps ""
 */
#include "runtime.h"

#include <sys/wait.h>

#define BLOCKS 12
#define BIG (3 * MIB)
#define MANY 12 /* of 8 MiB: so much that an allocator would rather wait for the old kernels than take new memory */

/* The last but two is as large as an allocator asks the driver for at once: perhaps the whole of what it got. */
static const size_t sizes[BLOCKS] = {100, 512, 4097, 64 * KIB, 1000, MIB, BIG, 300, 2 * MIB, 64 * MIB, 20 * KIB, 700 * KIB};

struct message {
    cudaIpcMemHandle_t handle[BLOCKS], again, interior, late;
};

static void give(int fd, const void *data, size_t size) {
    if (write(fd, data, size) != (ssize_t)size)
        die("the other process is gone");
}

static void get(int fd, void *data, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, (char *)data + got, size - got);
        if (n <= 0)
            die("the other process is gone");
        got += (size_t)n;
    }
}

static void say(const char *what, cudaError_t error) {
    printf("%s: %s\n", what, cudaGetErrorName(error));
    cudaGetLastError();
}

/* Is memory of our own anywhere in a block that is open here? */
static bool allocated_inside(void *const *open) {
    void *own[4];
    bool inside = false;

    for (size_t i = 0; i < COUNT_OF(own); i++) {
        RT(cudaMalloc(&own[i], BIG));
        for (int j = 0; j < BLOCKS; j++)
            inside |=
                j != 3 && (char *)own[i] < (char *)open[j] + sizes[j] && (char *)open[j] < (char *)own[i] + BIG; /* 3 is closed */
    }
    for (size_t i = 0; i < COUNT_OF(own); i++)
        RT(cudaFree(own[i]));
    return inside;
}

static int importer(int in, int out) {
    char first;
    struct message message;
    void *memory[BLOCKS], *twice, *other;
    size_t wrong = 0;
    cudaError_t error;
    char go = 1;
    int same = 0;

    if (read(in, &first, 1) != 1) /* there is nothing to import */
        return 0;
    get(in, &message, sizeof message);
    error = cudaIpcOpenMemHandle(&memory[1], message.handle[1], cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        say("open", error);
        fflush(stdout);
        give(out, "n", 1);
        return 0;
    }
    RT(cudaIpcCloseMemHandle(memory[1]));
    RT(cudaIpcOpenMemHandle(&other, message.late, cudaIpcMemLazyEnablePeerAccess));
    RT(cudaMemset(other, 0x77, BIG));
    RT(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS; i++) {
        RT(cudaIpcOpenMemHandle(&memory[i], message.handle[i], cudaIpcMemLazyEnablePeerAccess));
        wrong += wrong_on_device(memory[i], i + 1, sizes[i]);
        for (int j = 0; j < i; j++)
            same += memory[i] == memory[j];
    }
    printf("importer: wrong bytes %zu, blocks at another's address %d\n", wrong, same);
    RT(cudaIpcOpenMemHandle(&twice, message.handle[3], cudaIpcMemLazyEnablePeerAccess));
    RT(cudaIpcOpenMemHandle(&other, message.again, cudaIpcMemLazyEnablePeerAccess));
    printf("opened again: %s, from a second handle: %s\n", twice == memory[3] ? "the same address" : "another",
           other == memory[3] ? "the same address" : "another");
    RT(cudaIpcOpenMemHandle(&other, message.interior, cudaIpcMemLazyEnablePeerAccess));
    printf("from a handle of an interior address: %s\n", other == memory[6] ? "the block's" : "another");
    for (int i = 0; i < 3; i++)
        say("close", cudaIpcCloseMemHandle(memory[3]));
    say("close once more", cudaIpcCloseMemHandle(memory[3]));
    say("close inside a block", cudaIpcCloseMemHandle((char *)memory[6] + 512));
    say("free", cudaFree(memory[6]));
    printf("allocated inside what is open: %s\n", allocated_inside(memory) ? "yes" : "no");
    RT(cudaIpcCloseMemHandle(memory[6]));
    printf("one of two closed, read: wrong bytes %zu\n", wrong_on_device(memory[6], 7, BIG));
    for (int i = 0; i < BLOCKS; i++)
        if (i != 3)
            RT(cudaMemset(memory[i], 0x40 + i, sizes[i]));
    RT(cudaDeviceSynchronize());
    fflush(stdout);
    give(out, "w", 1);
    get(in, &go, 1); /* the exporter has freed block 9 and filled what it allocated since */
    printf("freed by the exporter, still open here: wrong bytes %zu %zu\n", wrong_on_device(memory[8], 0x48, sizes[8]),
           wrong_on_device(memory[9], 0x49, sizes[9]));
    fflush(stdout);
    give(out, "d", 1);
    get(in, &go, 1);
    return 0;
}

static void set_preload(const char *preload) {
    if (*preload)
        setenv("LD_PRELOAD", preload, 1);
    else
        unsetenv("LD_PRELOAD");
}

static void refusals(void) {
    cudaIpcMemHandle_t handle;
    void *memory;

    RT(cudaMallocAsync(&memory, 64 * KIB, 0));
    say("handle of stream-ordered memory", cudaIpcGetMemHandle(&handle, memory));
    RT(cudaFreeAsync(memory, 0));
    RT(cudaMallocManaged(&memory, 64 * KIB, cudaMemAttachGlobal));
    say("handle of managed memory", cudaIpcGetMemHandle(&handle, memory));
    RT(cudaFree(memory));
    RT(cudaMalloc(&memory, 64 * KIB));
    RT(cudaFree(memory));
    say("handle of freed memory", cudaIpcGetMemHandle(&handle, memory));
}

/* A block whose old kernel still runs when it is handed out again. */
static void *recycled(void) {
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    void *old[MANY], *next[MANY], *found;

    for (int i = 0; i < MANY; i++)
        RT(cudaMalloc(&old[i], 8 * MIB));
    delay(stream, 1000);
    for (int i = 0; i < MANY; i++)
        RT(cudaMemsetAsync(old[i], 0x55, 8 * MIB, stream));
    for (int i = 0; i < MANY; i++)
        RT(cudaFree(old[i]));
    for (int i = 0; i < MANY; i++)
        RT(cudaMalloc(&next[i], 8 * MIB));
    found = next[0];
    for (int i = 0; i < MANY * MANY; i++)
        if (next[i / MANY] == old[i % MANY])
            found = next[i / MANY];
    return found;
}

int main(int argc, char **argv) {
    static struct message message;
    void *memory[BLOCKS], *next;
    int to[2], from[2], status;
    size_t wrong = 0;
    char answer;
    pid_t child;

    if (argc == 4)
        return importer(atoi(argv[2]), atoi(argv[3]));
    if (pipe(to) != 0 || pipe(from) != 0)
        die("no pipe");
    child = fork(); /* before CUDA: the importer is another program */
    if (child == 0) {
        char in[16], out[16];
        close(to[1]); /* so that it sees the exporter's end */
        close(from[0]);
        snprintf(in, sizeof in, "%d", to[0]);
        snprintf(out, sizeof out, "%d", from[1]);
        if (argc > 1)
            set_preload(argv[1]);
        execl("/proc/self/exe", argv[0], "import", in, out, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    for (int i = 0; i < BLOCKS; i++) {
        RT(cudaMalloc(&memory[i], sizes[i]));
        RT(cudaMemset(memory[i], i + 1, sizes[i]));
    }
    RT(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS; i++)
        if (cudaIpcGetMemHandle(&message.handle[i], memory[i]) != cudaSuccess) {
            say("handle", cudaGetLastError());
            close(to[1]);
            waitpid(child, &status, 0);
            return 0;
        }
    RT(cudaIpcGetMemHandle(&message.again, memory[3]));
    RT(cudaIpcGetMemHandle(&message.interior, (char *)memory[6] + MIB));
    printf("the handle is the same each time: %s\n", memcmp(&message.again, &message.handle[3], sizeof message.again) == 0 ? "yes" : "no");
    refusals();
    next = recycled();
    RT(cudaIpcGetMemHandle(&message.late, next));
    fflush(stdout);
    give(to[1], "h", 1);
    give(to[1], &message, sizeof message);
    get(from[0], &answer, 1);
    if (answer == 'w') {
        for (int i = 0; i < BLOCKS; i++)
            if (i != 3)
                wrong += wrong_on_device(memory[i], 0x40 + i, sizes[i]);
        printf("exporter: wrong bytes %zu\n", wrong);
        RT(cudaFree(memory[8]));
        RT(cudaFree(memory[9]));
        for (int i = 0; i < 100; i++) { /* enough frees, and all of them done, for an allocator to use the block again */
            void *another;
            RT(cudaMalloc(&another, KIB));
            RT(cudaFree(another));
        }
        RT(cudaDeviceSynchronize());
        for (int i = 0; i < 6; i++) {
            void *another;
            RT(cudaMalloc(&another, sizes[8 + i % 2]));
            RT(cudaMemset(another, 0, sizes[8 + i % 2]));
        }
        RT(cudaDeviceSynchronize());
        fflush(stdout);
        give(to[1], "g", 1);
        get(from[0], &answer, 1);
        printf("written by the importer into recycled memory: wrong bytes %zu\n", wrong_on_device(next, 0x77, BIG));
        give(to[1], "g", 1);
    }
    waitpid(child, &status, 0);
    printf("importer ended: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
