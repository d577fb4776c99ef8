/*
 * A program that has not used CUDA forks; the child uses it through a plugin. Nothing may have started the driver in the parent,
 * or the child could not use it. Arguments: the plugin, a kind of allocation.
 */
#include "program.h"
#include <dlfcn.h>
#include <sys/wait.h>

static bool driver_is_loaded(void) {
    char line[4096];
    bool loaded = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        loaded |= strstr(line, "libcuda.so") != NULL;
    if (maps)
        fclose(maps);
    return loaded;
}

int main(int argc, char **argv) {
    int status = 0;
    if (argc < 3)
        return 2;
    printf("driver loaded before the fork: %s\n", yes_no(driver_is_loaded()));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        int (*plugin_run)(const char *) = plugin ? (int (*)(const char *))dlsym(plugin, "plugin_run") : NULL;
        if (!plugin_run)
            die("%s", dlerror());
        exit(plugin_run(argv[2]));
    }
    waitpid(child, &status, 0);
    printf("child: %s %d\n", WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    printf("driver loaded in the parent: %s\n", yes_no(driver_is_loaded()));
    return 0;
}
