/*
 * Linked to forwarding_outer.so, whose cuFooCreate forwards to the function of the same name in a library it opens itself
 * (argument). A look-up that ignores the handle finds the outer one again, and never ends.
 */
#include "program.h"

int cuFooCreate(const char *inner);

int main(int argc, char **argv) {
    printf("cuFooCreate: %d\n", argc > 1 ? cuFooCreate(argv[1]) : -1);
    return 0;
}
