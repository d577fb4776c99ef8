/* errors.c — the names and texts of results, from errors.def. */
#include "sim.h"

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ERROR(code, text) {code, #code, text},
#include "errors.def"
#undef ERROR
};

static CUresult look_up(CUresult code, const char **out, bool name) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == code) {
            *out = name ? errors[i].name : errors[i].text;
            return CUDA_SUCCESS;
        }
    *out = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGetErrorName(CUresult code, const char **out) {
    return look_up(code, out, true);
}
CUresult sim_cuGetErrorString(CUresult code, const char **out) {
    return look_up(code, out, false);
}
