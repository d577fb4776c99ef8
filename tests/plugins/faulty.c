/*
 * faulty.c: an allocator library that does wrong what FAULTY names, once, at its third allocation (null: always).
 *     misaligned, repeated, overlapping, null, frees (frees the second, which the program has), throws (a foreign exception)
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

static CUdeviceptr answers[16];
static int count, refused;

void *my_malloc(size_t size, int device, CUstream stream);
void my_free(void *pointer, size_t size, int device, CUstream stream);

static int is(const char *fault) {
    const char *name = getenv("FAULTY");

    return name && strcmp(name, fault) == 0;
}

static void clean_up(_Unwind_Reason_Code reason, struct _Unwind_Exception *exception) {
    (void)reason;
    free(exception);
}

void *my_malloc(size_t size, int device, CUstream stream) {
    struct _Unwind_Exception *exception;
    CUdeviceptr pointer = 0;
    int now = ++count;

    (void)device, (void)stream;
    if (is("null"))
        return NULL;
    if (now == 3 && is("throws")) {
        exception = calloc(1, sizeof *exception);
        exception->exception_cleanup = clean_up;
        _Unwind_RaiseException(exception);
        abort(); /* nobody caught it */
    }
    if (now == 3 && is("repeated"))
        return (void *)answers[2];
    if (now == 3 && is("overlapping"))
        return (void *)(answers[2] + 512);
    if (now == 3 && is("frees"))
        cuMemFree(answers[2]);
    if (cuMemAlloc(&pointer, size + 512) != CUDA_SUCCESS)
        return NULL;
    if (now == 3 && is("misaligned"))
        pointer += 64;
    if (now < 16)
        answers[now] = pointer;
    return (void *)pointer;
}

void my_free(void *pointer, size_t size, int device, CUstream stream) {
    (void)size, (void)device, (void)stream;
    if ((CUdeviceptr)pointer & 255)
        pointer = (char *)pointer - 64;
    if (cuMemFree((CUdeviceptr)pointer) != CUDA_SUCCESS)
        refused++;
}
