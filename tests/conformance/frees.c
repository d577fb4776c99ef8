/*
 * What can be freed by what, once, twice, in the middle, and what is nobody's; and what the runtime's last error is then.
 */
#include "conform.h"

void group_pairs(void) {
    start();
    for (int k = 0; k < KINDS; k++) {
        for (int w = 0; w < WAYS; w++) {
            void *p = memory(k, 4096);
            begin("%s + %s", kind_name[k], way_name[w]);
            struct outcome freed = give(w, p);
            say_outcome(freed);
            NEED(cudaStreamSynchronize(stream));
            say("again=");
            say_outcome(give(w, p));
            if (!worked(freed)) {
                say("cudaFree=");
                say_rt(cudaFree(p));
            }
            NEED(cudaStreamSynchronize(stream));
            end();
        }
    }
    /* No line about a second free while the first is queued: the driver accepts it, and hangs. */
    for (int w = 0; w < WAYS; w++) {
        begin("NULL + %s", way_name[w]);
        say_outcome(give(w, NULL));
        end();
    }
}

void group_interiors(void) {
    start();
    for (int k = 0; k < KINDS; k++) {
        for (int w = 0; w < WAYS; w++) {
            char *p = memory(k, 3 * MIB);
            begin("%s + %s", kind_name[k], way_name[w]);
            say("256=");
            say_outcome(give(w, p + 256));
            say("2MiB=");
            say_outcome(give(w, p + 2 * MIB));
            say("last=");
            say_outcome(give(w, p + 3 * MIB - 1));
            say("base=");
            say_rt(cudaFree(p));
            end();
        }
    }
}

void group_foreign(void) {
    static char in_program[8192];
    char on_stack[64];
    void *pinned, *freed_pinned, *gone, *registered = aligned_alloc(4096, 4096);
    struct mapping mapping;
    start();
    map(&mapping);
    NEED(cudaMallocHost(&pinned, 4096));
    NEED(cudaMallocHost(&freed_pinned, 4096));
    NEED(cudaFreeHost(freed_pinned));
    NEED(cudaHostRegister(registered, 4096, cudaHostRegisterDefault));
    gone = memory(MALLOC, 5 * MIB);
    NEED(cudaFree(gone));
    const struct {
        const char *name;
        void *p;
    } strangers[] = {
        {"stack", on_stack},
        {"static", in_program},
        {"heap", malloc(100)},
        {"pinned", pinned},
        {"pinned, freed", freed_pinned},
        {"registered", registered},
        {"0x1234", (void *)0x1234},
        {"-1", (void *)UINTPTR_MAX},
        {"code", (void *)(uintptr_t)group_foreign},
        {"mapping", (void *)mapping.at},
        {"freed", gone},
    };
    for (size_t i = 0; i < COUNT_OF(strangers); i++) {
        for (int w = 0; w < WAYS; w++) {
            begin("%s + %s", strangers[i].name, way_name[w]);
            say_outcome(give(w, strangers[i].p));
            end();
        }
    }
    NEED(cudaHostUnregister(registered));
    NEED(cudaFreeHost(pinned));
    unmap(&mapping);
}

/* An error is reported once, by a failing call only, and no call that succeeds takes an earlier one away. */
void group_last_error(void) {
    start();
    for (int k = 0; k < KINDS; k++) {
        void *p = NULL;
        begin("earlier error, then %s", kind_name[k]);
        cudaMalloc(NULL, 1);
        struct outcome taken = take(k, &p, 4096);
        say("%s", taken.code == 0 ? "worked" : "failed");
        say("%s", last(cudaErrorInvalidValue));
        end();
        drop(p);
        begin("earlier error, then %s(0)", kind_name[k]);
        cudaMalloc(NULL, 1);
        p = NULL;
        taken = take(k, &p, 0);
        say("%s", taken.code == 0 ? "worked" : "failed");
        say("%s", last(cudaErrorInvalidValue));
        end();
        begin("earlier error, then %s(SIZE_MAX)", kind_name[k]);
        cudaMalloc(NULL, 1);
        p = NULL;
        taken = take(k, &p, SIZE_MAX);
        say("%s", taken.code == 0 ? "worked" : "failed");
        say("%s", last(cudaErrorMemoryAllocation));
        end();
    }
    for (int k = 0; k < KINDS; k++) {
        for (int w = 0; w < WAYS; w++) {
            void *p = memory(k, 4096);
            begin("earlier error, then %s + %s", kind_name[k], way_name[w]);
            cudaMalloc(NULL, 1);
            struct outcome freed = give(w, p);
            say("%s", worked(freed) ? "worked" : "failed");
            say("%s", last(cudaErrorInvalidValue));
            end();
            if (!worked(freed))
                drop(p);
        }
    }
    void *p;
    begin("out of memory, then cudaFree(NULL)");
    cudaMalloc(&p, SIZE_MAX);
    say("%s", rt(cudaFree(NULL)));
    say("%s", last(cudaErrorMemoryAllocation));
    end();
    begin("out of memory, then bad free");
    cudaMalloc(&p, SIZE_MAX);
    say("%s", rt(cudaFree((void *)0x1234)));
    say("%s", last(cudaErrorMemoryAllocation));
    end();
    begin("bad free, then out of memory");
    cudaFree((void *)0x1234);
    say("%s", rt(cudaMalloc(&p, SIZE_MAX)));
    say("%s", last(cudaErrorMemoryAllocation));
    end();
    begin("peek leaves it");
    cudaFree((void *)0x1234);
    cudaError_t peeked = cudaPeekAtLastError(), again = cudaPeekAtLastError();
    say("%s %s %s", rt(peeked), rt(again), last(cudaErrorInvalidValue));
    end();
    size_t free_bytes, total;
    begin("earlier error, then cudaMemGetInfo");
    cudaMalloc(NULL, 1);
    say("%s", rt(cudaMemGetInfo(&free_bytes, &total)));
    say("%s", last(cudaErrorInvalidValue));
    end();
    struct cudaPointerAttributes attributes;
    begin("earlier error, then cudaPointerGetAttributes of the stack");
    cudaMalloc(NULL, 1);
    say("%s", rt(cudaPointerGetAttributes(&attributes, &attributes)));
    say("%s", last(cudaErrorInvalidValue));
    end();
}
