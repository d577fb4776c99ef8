/*
 * registry.c: see registry.h. One table, of the backends that config/options.def lists.
 */
#include "registry.h"

#include "shim/log.h"

#include <string.h>

static const struct cuplug_backend_ops *const backends[CUPLUG_BACKEND_COUNT] = {
    [CUPLUG_BACKEND_DIRECT] = &cuplug_backend_direct,
    [CUPLUG_BACKEND_POOL] = &cuplug_backend_pool,
    [CUPLUG_BACKEND_ARENA] = &cuplug_backend_arena,
    [CUPLUG_BACKEND_MANAGED] = &cuplug_backend_managed,
};

static void *selves[CUPLUG_BACKEND_COUNT]; /* written while the options are read, before anything is served */

void *cuplug_backend_self(int number) {
    return selves[number];
}

const struct cuplug_backend_ops *cuplug_backend(int number) {
    return number >= 0 && number < CUPLUG_BACKEND_COUNT ? backends[number] : NULL;
}

int cuplug_backend_choose(const char *spec) {
    size_t length = strcspn(spec, ":");

    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++) {
        const char *name = backends[i]->name;

        if (strlen(name) == length && strncmp(name, spec, length) == 0) {
            const char *options = spec[length] ? spec + length + 1 : "";

            if (!backends[i]->open || backends[i]->open(options, &selves[i]) == CUDA_SUCCESS)
                return i;
            cuplug_log(CUPLUG_LOG_ERROR, "CUPLUG_BACKEND=%s: %s could not be set up; using direct", spec, name);
            return CUPLUG_BACKEND_DIRECT;
        }
    }
    return CUPLUG_BACKEND_DIRECT;
}
