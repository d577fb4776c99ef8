/*
 * A program without CUDA that opens plugins one after another, each with its own runtime, as Python opens wheels: RTLD_LOCAL.
 * Arguments: the kind of allocation, then the plugins.
 */
#include "program.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 2; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            die("%s", dlerror());
        int (*plugin_run)(const char *) = (int (*)(const char *))dlsym(plugin, "plugin_run");
        if (!plugin_run)
            die("%s", dlerror());
        failed |= plugin_run(argv[1]);
        fflush(stdout);
    }
    return failed;
}
