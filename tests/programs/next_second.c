/*
 * Second in the load order.
 */
const char *tool_start(void);
const char *tool_start(void) {
    return "second";
}
