/*
 * Opens the libraries named, those after "deep" with RTLD_DEEPBIND, and does nothing with them.
 */
#include "program.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    int opened = 0, flags = RTLD_NOW | RTLD_LOCAL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "deep") == 0)
            flags |= RTLD_DEEPBIND;
        else if (dlopen(argv[i], flags))
            opened++;
        else
            die("%s", dlerror());
    }
    printf("opened %d\n", opened);
    return 0;
}
