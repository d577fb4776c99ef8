/*
 * The implementation behind forwarding_outer.c.
 */
int cuFooCreate(const char *unused);
int cuFooCreate(const char *unused) {
    (void)unused;
    return 42;
}
