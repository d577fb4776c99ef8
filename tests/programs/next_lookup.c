/*
 * Asks the first library in line for its tool, which looks for the next one of that name behind itself (RTLD_NEXT), as PyTorch's
 * profiler hooks do. Linked to next_first.so and next_second.so, or (next_alone) to the first only.
 */
#include "program.h"

const char *tool_start(void);

int main(void) {
    printf("next tool: %s\n", tool_start());
    return 0;
}
