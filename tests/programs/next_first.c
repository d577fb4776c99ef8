/*
 * First in the load order; forwards to whoever exports the same name behind it.
 */
#include <dlfcn.h>
#include <stddef.h>

const char *tool_start(void);
const char *tool_start(void) {
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "tool_start");
    return next == tool_start ? "itself" : next ? next() : "none";
}
