/*
 * options_test.c: options as users write them: sizes (C105), booleans (C106), backend specs, file name templates, configuration
 * files, LD_PRELOAD. A user would lose: a limit that was read as 4 bytes, a feature that "0" switches on, a misspelt line that
 * does nothing.
 */
#include "config/options.h"
#include "config/table.h"
#include "config/template.h"
#include "shim/log.h"

#include "unit.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char said[4096]; /* what was logged since it was last emptied, a line each */
static int lines;

void cuplug_log(enum cuplug_log_level level, const char *format, ...) {
    size_t length = strlen(said);
    va_list list;

    (void)level;
    va_start(list, format);
    vsnprintf(said + length, sizeof said - length, format, list);
    va_end(list);
    strncat(said, "\n", sizeof said - strlen(said) - 1);
    lines++;
}

static void read_options(void) {
    *said = 0;
    lines = 0;
    cuplug_options_read();
}

/* Reads the options with only this variable set. */
static void read_with(const char *variable, const char *value) {
    setenv(variable, value, 1);
    read_options();
    unsetenv(variable);
}

static bool says(const char *text) {
    bool found = strstr(said, text) != NULL;

    if (!found)
        printf("# not said: \"%s\", but: %s\n", text, said);
    return found;
}

static void sizes(void) {
    static const struct {
        const char *text;
        uint64_t bytes;
        const char *wrong;
    } table[] = {
        {"0", 0, NULL},
        {"1", 1, NULL},
        {"4096", 4096, NULL},
        {"4K", 4096, NULL},
        {"4k", 4096, NULL},
        {"4Ki", 4096, NULL},
        {"4KiB", 4096, NULL},
        {"4kib", 4096, NULL},
        {"4KB", 4096, NULL},
        {"3M", 3 << 20, NULL},
        {"4Gi", 4ull << 30, NULL},
        {"4GB", 4ull << 30, NULL},
        {"2T", 2ull << 40, NULL},
        {"08G", 8ull << 30, NULL}, /* decimal, never octal */
        {"010", 10, NULL},
        {"0100M", 100 << 20, NULL},
        {"0m", 0, NULL},
        {" 4G", 4ull << 30, NULL},
        {"4G ", 4ull << 30, NULL},
        {"4G\n", 4ull << 30, NULL},
        {"18446744073709551615", UINT64_MAX, NULL},
        {"18446744073709551616", 0, "too large"},
        {"16777215T", 16777215ull << 40, NULL},
        {"16777216T", 0, "too large"},
        {"99999999999999999999999G", 0, "too large"},
        {"", 0, "empty"},
        {"  ", 0, "empty"},
        {"-1", 0, "a sign is not allowed"},
        {"+1", 0, "a sign is not allowed"},
        {"1.5G", 0, "decimals are not allowed"},
        {"1,5G", 0, "decimals are not allowed"},
        {"0x10", 0, "hexadecimal is not allowed"},
        {"G", 0, "not a number"},
        {"four", 0, "not a number"},
        {"4 G", 0, "no such unit"},
        {"4Gx", 0, "no such unit"},
        {"4GiBs", 0, "no such unit"},
        {"4GiGi", 0, "no such unit"},
        {"4P", 0, "no such unit"},
        {"4B", 0, "no such unit"},
        {"1e9", 0, "no such unit"},
        {"50%", 0, "no such unit"},
        {"4G 4G", 0, "no such unit"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t bytes = 77;
        const char *wrong = cuplug_value_size(NULL, table[i].text, strlen(table[i].text), &bytes);
        bool right =
            table[i].wrong ? wrong && strcmp(wrong, table[i].wrong) == 0 && bytes == 77 : !wrong && bytes == table[i].bytes;

        if (!right)
            printf("# \"%s\": %s, %llu\n", table[i].text, wrong ? wrong : "fine", (unsigned long long)bytes);
        CHECK(right);
    }
}

static void size_ranges_and_percentages(void) {
    static const struct {
        const char *range, *text, *wrong;
        bool percent;
        uint64_t value;
    } table[] = {
        {"2M..", "2M", NULL, false, 2 << 20},
        {"2M..", "2097151", "too small", false, 0},
        {"2M..1G", "1G", NULL, false, 1 << 30},
        {"2M..1G", "1073741825", "too large", false, 0},
        {"2M..", "1%", NULL, true, 1},
        {"2M..", "100%", NULL, true, 100},
        {"2M..", "0%", "too small", false, 0},
        {"2M..", "101%", "too large", false, 0},
        {"2M..", "-5%", "a sign is not allowed", false, 0},
        {"2M..", "5.5%", "decimals are not allowed", false, 0},
        {"2M..", "5K%", "not a number", false, 0},
        {"2M..", "%", "empty", false, 0},
        {"2M..", "50%%", "not a number", false, 0},
        {"2M..", "50 %", "not a number", false, 0},
        {NULL, "7", NULL, false, 7},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct cuplug_amount amount = {false, 77};
        const char *wrong = cuplug_value_amount(table[i].range, table[i].text, strlen(table[i].text), &amount);
        bool right = table[i].wrong ? wrong && strcmp(wrong, table[i].wrong) == 0 && amount.value == 77
                                    : !wrong && amount.percent == table[i].percent && amount.value == table[i].value;

        if (!right)
            printf("# \"%s\": %s, %llu\n", table[i].text, wrong ? wrong : "fine", (unsigned long long)amount.value);
        CHECK(right);
    }
}

static void booleans(void) {
    static const struct {
        const char *text;
        int value; /* -1: refused */
    } table[] = {{"0", 0},   {"off", 0},  {"false", 0}, {"no", 0},  {"1", 1},   {"on", 1},    {"true", 1},
                 {"yes", 1}, {"TRUE", 1}, {"Off", 0},   {" 1 ", 1}, {"", -1},   {"junk", -1}, {"2", -1},
                 {"10", -1}, {"y", -1},   {"on!", -1},  {"-1", -1}, {"1 0", -1}};

    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        char spec[64];
        bool standard;

        if (option->type != CUPLUG_TYPE_BOOL)
            continue;
        read_options();
        standard = *(bool *)option->value;
        CHECK(lines == 0 && standard == (*option->standard == '1'));
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            snprintf(spec, sizeof spec, "%s:%s=%s", option->backend, option->key, table[i].text);
            if (option->backend)
                read_with("CUPLUG_BACKEND", spec);
            else
                read_with(option->variable, table[i].text);
            CHECK(*(bool *)option->value == (table[i].value < 0 ? standard : table[i].value == 1));
            CHECK(lines == (table[i].value < 0) && cuplug_options_valid() == (table[i].value >= 0));
        }
    }
}

static void backend_specs(void) {
    read_with("CUPLUG_BACKEND", "pool:reuse=completed,free=wait");
    CHECK(lines == 0 && cuplug_pool_options.reuse == 1 && cuplug_pool_options.wait == 1);
    CHECK(strcmp(cuplug_options.backend, "pool:reuse=completed,free=wait") == 0);
    read_with("CUPLUG_BACKEND", "pool");
    CHECK(lines == 0 && cuplug_pool_options.reuse == 0 && cuplug_pool_options.wait == 0);
    CHECK(cuplug_pool_options.keep.percent && cuplug_pool_options.keep.value == 100 && cuplug_pool_options.decay == 0);
    read_with("CUPLUG_BACKEND", "pool:max=10%,keep=0,decay=90,slack=1M");
    CHECK(lines == 0 && cuplug_pool_options.max.percent && cuplug_pool_options.max.value == 10 && !cuplug_pool_options.keep.percent);
    CHECK(!cuplug_pool_options.keep.value && cuplug_pool_options.decay == 90 && cuplug_pool_options.slack.value == 1 << 20);
    read_with("CUPLUG_BACKEND", "arena:size=8G");
    CHECK(lines == 0 && !cuplug_arena_options.size.percent && cuplug_arena_options.size.value == 8ull << 30);
    read_with("CUPLUG_BACKEND", "managed:preferred=host,accessed=none,prefetch=on,max=10%,force=1");
    CHECK(lines == 0 && cuplug_managed_options.preferred == 1 && cuplug_managed_options.accessed == 1 &&
          cuplug_managed_options.prefetch);
    CHECK(cuplug_managed_options.force && cuplug_managed_options.max.percent && cuplug_managed_options.max.value == 10);
    read_options();
    CHECK(!strcmp(cuplug_options.backend, "direct") && cuplug_arena_options.size.percent &&
          cuplug_arena_options.size.value == 50);
    CHECK(!cuplug_managed_options.prefetch && cuplug_managed_options.max.value == 100);
}

static void bad_backend_specs(void) {
    static const struct {
        const char *spec, *message, *backend;
    } table[] = {
        {"pol", "CUPLUG_BACKEND=pol: no such backend (direct, pool, arena, managed, async, or the path of a .so); using direct\n", "direct"},
        {"", "CUPLUG_BACKEND=: empty (direct, pool, arena, managed, async, or the path of a .so); using direct\n", "direct"},
        {"pool,reuse=fence", "no such backend", "direct"},
        {"Pool", "no such backend", "direct"},
        {"pool:reuse=completed,free=never", ": free=never: no such choice (fence, wait); using pool with its defaults\n", "pool"},
        {"pool:most=1G", ": most=1G: no such option of pool (reuse, free, max, keep, decay, slack, source); using pool", "pool"},
        {"pool:", ": : no such option of pool", "pool"},
        {"pool:reuse=fence,", ": : no such option of pool", "pool"},
        {"pool:reuse", ": reuse: no value (fence, completed)", "pool"},
        {"pool:reuse=", ": reuse=: empty (fence, completed)", "pool"},
        {"direct:size=1", ": size=1: no such option of direct (it has none)", "direct"},
        {"arena:size=1M", ": size=1M: too small (a size such as 512M or 8G, at least 2M, or 1% to 100%)", "arena"},
        {"arena:size=-1", ": size=-1: a sign is not allowed", "arena"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        read_with("CUPLUG_BACKEND", table[i].spec);
        CHECK(lines == 1 && says(table[i].message) && !cuplug_options_valid());
        CHECK(strcmp(cuplug_options.backend, table[i].backend) == 0 && cuplug_pool_options.reuse == 0 &&
              cuplug_pool_options.wait == 0);
    }
}

static void long_values_keep_the_message(void) {
    char value[5000];

    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = 0;
    read_with("CUPLUG_LOG", value);
    CHECK(lines == 1 && says("xxx...: no such choice (error, warn, info, debug); using warn\n"));
    read_with("CUPLUG_STATS", "%z%z");
    CHECK(lines == 1 && says("CUPLUG_STATS=%z%z: %z: no such directive (%p, %h, %e, %r, %l, %j, %q{NAME}, %%); ignored\n"));
}

static void checking_and_strict(void) {
    setenv("CUPLUG_BACKEND", "pol", 1);
    *said = 0;
    CHECK(!cuplug_options_check() && says("(direct, pool, arena, managed, async, or the path of a .so)\n"));
    setenv("CUPLUG_STRICT", "1", 1);
    read_options();
    CHECK(lines == 1 && !cuplug_options_valid() && says("; allocations will fail\n"));
    unsetenv("CUPLUG_BACKEND");
    read_with("CUPLUG_BACKNED", "pool");
    CHECK(lines == 1 && !cuplug_options_valid() && says("did you mean CUPLUG_BACKEND?"));
    unsetenv("CUPLUG_STRICT");
    CHECK(cuplug_options_check());
}

static void unknown_variables(void) {
    static const char *const known_to_others[] = {"CUPLUG_LIBRARY", "CUPLUG_DEBUG_FAULT", "CUPLUG_TEST_DRIVER"};

    read_with("CUPLUG_BACKNED", "pool");
    CHECK(lines == 1 && says("CUPLUG_BACKNED: no such option (did you mean CUPLUG_BACKEND?)\n") && cuplug_options_valid());
    read_with("CUPLUG_LIBRARYS", "x");
    CHECK(lines == 1);
    for (size_t i = 0; i < 3; i++) {
        read_with(known_to_others[i], "x");
        CHECK(lines == 0);
    }
}

static void expands(const char *template, const char *expected, const char *message) {
    char path[200] = "";
    bool fine;

    *said = 0;
    fine = cuplug_template_expand("CUPLUG_STATS", template, path, sizeof path);
    if (!fine || strcmp(path, expected) != 0)
        printf("# %s: %s instead of %s\n", template, path, expected);
    CHECK(fine && strcmp(path, expected) == 0);
    CHECK(message ? says(message) : !*said);
}

static void templates(void) {
    static const char *const cleared[] = {"RANK",
                                          "OMPI_COMM_WORLD_RANK",
                                          "PMIX_RANK",
                                          "PMI_RANK",
                                          "SLURM_PROCID",
                                          "LOCAL_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "MPI_LOCALRANKID",
                                          "SLURM_LOCALID",
                                          "SLURM_JOB_ID",
                                          "PBS_JOBID",
                                          "LSB_JOBID"};
    char expected[200], host[100] = "";

    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        unsetenv(cleared[i]);
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "a/%ld.%s.options_test.100%%.json", (long)getpid(), host);
    expands("a/%p.%h.%e.100%%.json", expected, NULL);
    expands("%r-%l", "none-none", "CUPLUG_STATS=%r-%l: the environment does not say what %r is; it becomes \"none\"\n");
    setenv("SLURM_PROCID", "7", 1);
    setenv("SLURM_LOCALID", "3", 1);
    setenv("PBS_JOBID", "12.head", 1);
    expands("%r-%l-%j", "7-3-12.head", NULL);
    setenv("RANK", "5", 1); /* torchrun inside a Slurm job */
    expands("%r-%l", "5-3", NULL);
    setenv("UNIT_FOLDER", "../../etc", 1);
    expands("out/%q{UNIT_FOLDER}.%q{UNIT_FOLDER}", "out/.._.._etc..._.._etc", NULL);
    expands("%q{UNIT_UNSET}x", "nonex", "what %q{NAME} is");
    *said = 0;
    CHECK(!cuplug_template_expand("CUPLUG_STATS", "%%0123456789", expected, 8) && says("longer than 8 bytes"));
    CHECK(cuplug_template_expand("CUPLUG_STATS", "0123456", expected, 8) && strcmp(expected, "0123456") == 0);
}

static void bad_templates(void) {
    static const char *const table[] = {"%", "a%", "%z", "%q", "%q{", "%q{}", "%qNAME", "%P", "%5p", "%p%"};
    char what[300];

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CHECK(!cuplug_template_check(table[i], what, sizeof what));
        read_with("CUPLUG_STATS", table[i]);
        CHECK(lines == 1 && says("; ignored\n") && !cuplug_options.stats);
    }
    CHECK(cuplug_template_check("%p%%%q{A}%h", what, sizeof what) && cuplug_template_check("", what, sizeof what));
}

static char folder[] = "/tmp/options_test.XXXXXX", path[100];

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");

    fputs(text, file);
    fclose(file);
    read_with("CUPLUG_CONFIG", path);
}

static void configuration_file(void) {
    write_file(
        "# a comment\n\n  backend =pool:reuse=completed   # another\r\n\treport\t=\tyes\nlog=debug\nstats = out.#%p\nlog = info");
    CHECK(lines == 0 && cuplug_options_valid() && cuplug_options.report && cuplug_options.log == 2 &&
          cuplug_pool_options.reuse == 1);
    CHECK(!strcmp(cuplug_options.backend, "pool:reuse=completed") && !strcmp(cuplug_options.stats, "out.#%p"));
    CHECK(cuplug_option_origin(cuplug_option_find(NULL, "report", 6)).line == 4);
    write_file("backend = pool:reuse=completed\nbackend = pool:free=wait\n"); /* the last one counts, as a whole */
    CHECK(lines == 0 && cuplug_pool_options.reuse == 0 && cuplug_pool_options.wait == 1);
    setenv("CUPLUG_BACKEND", "pool", 1); /* the environment wins, as a whole */
    write_file("backend = pool:reuse=completed\nreport = 1\n");
    CHECK(lines == 0 && cuplug_options.report && cuplug_pool_options.reuse == 0);
    setenv("CUPLUG_BACKEND", "pol", 1);
    write_file("backend = pool\n");
    CHECK(lines == 1 && !strcmp(cuplug_options.backend, "direct"));
    unsetenv("CUPLUG_BACKEND");
    write_file("");
    CHECK(lines == 0);
    CHECK(cuplug_options_valid());
}

static void bad_configuration_files(void) {
    static const struct {
        const char *text, *message;
    } table[] = {
        {"\nreport = maybe\n", ":2: report = maybe: not a boolean (1, 0, yes, no, on, off, true, false); using 0\n"},
        {"backend = pol", ":1: backend = pol: no such backend (direct, pool, arena, managed, async, or the path of a .so); using direct\n"},
        {"backend = pool:reuse=x", ": reuse=x: no such choice (fence, completed); using pool with its defaults\n"},
        {"report\n", ":1: report: no `=` (lines are: name = value); ignored\n"},
        {"repport = 1\n", ":1: repport = 1: no such option (did you mean report?); ignored\n"},
        {"REPORT = 1\n", ": no such option (did you mean report?)"},
        {"= 1\n", ":1: = 1: no such option"},
        {"report =\n", ":1: report = : empty ("},
        {"report = # 1\n", ":1: report = : empty ("},
        {"config = other\n", "not here (CUPLUG_CONFIG or --config names the file); ignored"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_file(table[i].text);
        CHECK(lines == 1 && says(path) && says(table[i].message) && !cuplug_options.report && !cuplug_options_valid());
    }
    chmod(path, 0);
    read_with("CUPLUG_CONFIG", path);
    CHECK(geteuid() == 0 || (lines == 1 && says(": Permission denied (")));
    unlink(path);
    read_with("CUPLUG_CONFIG", path);
    CHECK(lines == 1 && says("CUPLUG_CONFIG=") &&
          says(": No such file or directory (a file with lines: name = value); ignored\n"));
    read_with("CUPLUG_CONFIG", folder);
    CHECK(lines == 1 && says(": is a directory ("));
    mkfifo(path, 0600);
    read_with("CUPLUG_CONFIG", path);
    CHECK(lines == 1 && says(": is not a regular file ("));
    unlink(path);
}

static void log_files(void) {
    char missing[140];

    read_with("CUPLUG_LOG_FILE", path);
    CHECK(lines == 0 && access(path, F_OK) != 0 && !strcmp(cuplug_options.log_file, path));
    read_with("CUPLUG_LOG_FILE", folder);
    CHECK(lines == 1 && says(": is a directory (a file that can be written); ignored\n") && !cuplug_options.log_file);
    snprintf(missing, sizeof missing, "%s/none/log", folder);
    read_with("CUPLUG_LOG_FILE", missing);
    CHECK(lines == 1 && says(": No such file or directory ("));
    mkfifo(path, 0600); /* opening it would block */
    read_with("CUPLUG_LOG_FILE", path);
    CHECK(lines == 1 && says(": is not a file ("));
    unlink(path);
}

static void unfollow(void) {
    char own[4096] = "", list[9000], expected[9000];
    const char *now;

    if (readlink("/proc/self/exe", own, sizeof own - 1) <= 0)
        return;
    snprintf(list, sizeof list, "/a/b.so:%s c.so", own);
    setenv("LD_PRELOAD", list, 1);
    cuplug_options_unfollow();
    CHECK(!strcmp(getenv("LD_PRELOAD"), "/a/b.so:c.so"));
    snprintf(list, sizeof list, "x.so  /a/%s.so:%s", "b", own);
    setenv("LD_PRELOAD", list, 1);
    cuplug_options_unfollow();
    CHECK(!strcmp(getenv("LD_PRELOAD"), "x.so  /a/b.so"));
    CHECK(symlink(own, path) == 0); /* the same file by another name */
    snprintf(list, sizeof list, "%s:%s:options_test:/x/$LIB/options_test:other", path, own);
    setenv("LD_PRELOAD", list, 1);
    cuplug_options_unfollow();
    CHECK(!strcmp(getenv("LD_PRELOAD"), "other"));
    setenv("LD_PRELOAD", own, 1);
    cuplug_options_unfollow();
    CHECK(!getenv("LD_PRELOAD"));
    snprintf(expected, sizeof expected, "%s.other:/x/options_test2", own);
    setenv("LD_PRELOAD", expected, 1);
    cuplug_options_unfollow();
    now = getenv("LD_PRELOAD");
    CHECK(now && !strcmp(now, expected));
    unsetenv("LD_PRELOAD");
    unlink(path);
}

static void names_agree(void) {
    for (const struct cuplug_option *option = cuplug_option_table; option->key; option++) {
        char variable[80] = "CUPLUG_", right[400];

        for (size_t i = 0; option->key[i]; i++)
            variable[i + 7] = option->key[i] == '_' || option->key[i] < 'a' ? option->key[i] : (char)(option->key[i] - 'a' + 'A');
        CHECK(option->backend || strcmp(variable, option->variable) == 0);
        CHECK(!option->backend || cuplug_backend_find(option->backend, strlen(option->backend)));
        CHECK(option->standard || option->type < CUPLUG_TYPE_SPEC || option->type == CUPLUG_TYPE_SPECS);
        cuplug_option_describe(option, right, sizeof right);
        CHECK(*right && *option->help && option->help[strlen(option->help) - 1] != '.');
    }
    CHECK(cuplug_value_distance("BACKNED", "backend") == 1 && cuplug_value_distance("", "abc") == 3 &&
          cuplug_value_distance("abc", "abd") == 1);
}

int main(void) {
    extern char **environ;

    for (char **entry = environ; *entry;) { /* no option of the caller's */
        char name[80];

        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (strncmp(name, "CUPLUG_", 7) == 0)
            unsetenv(name);
        else
            entry++;
    }
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    RUN(sizes);
    RUN(size_ranges_and_percentages);
    RUN(booleans);
    RUN(backend_specs);
    RUN(bad_backend_specs);
    RUN(long_values_keep_the_message);
    RUN(checking_and_strict);
    RUN(unknown_variables);
    RUN(templates);
    RUN(bad_templates);
    RUN(configuration_file);
    RUN(bad_configuration_files);
    RUN(log_files);
    RUN(unfollow);
    RUN(names_agree);
    rmdir(folder);
    return 0;
}
