/*
 * A library that calls a function of the program's from its destructor: after the exit handlers, and after the destructors of
 * what was preloaded.
 */
void free_in_destructor(void (*function)(void));

static void (*at_the_end)(void);

void free_in_destructor(void (*function)(void)) {
    at_the_end = function;
}

static void __attribute__((destructor)) end(void) {
    if (at_the_end)
        at_the_end();
}
