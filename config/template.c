/*
 * template.c: see template.h. No state.
 */
#include "template.h"

#include "shim/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct cuplug_directive cuplug_directive_table[] = {
    {"%p", "the process id", NULL},
    {"%h", "the host's name", NULL},
    {"%e", "the program's name", NULL},
    {"%r", "the rank", "RANK OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID"},
    {"%l", "the rank on this host", "LOCAL_RANK OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID SLURM_LOCALID"},
    {"%j", "the job", "SLURM_JOB_ID PBS_JOBID LSB_JOBID"},
    {"%q{NAME}", "the environment variable NAME", NULL},
    {"%%", "a percent sign", NULL},
    {0},
};

struct output {
    char *path;
    size_t length, room; /* more than room: it did not fit */
};

static void put(struct output *output, char c) {
    if (output->length < output->room)
        output->path[output->length] = c;
    output->length++;
}

static void put_value(struct output *output, const char *value) {
    for (; *value; value++)
        put(output, *value == '/' ? '_' : *value);
}

static const struct cuplug_directive *find(char letter) {
    for (const struct cuplug_directive *directive = cuplug_directive_table; directive->text; directive++)
        if (directive->text[1] == letter)
            return directive;
    return NULL;
}

/* The value of a variable whose name ends after `length` bytes; NULL if it is unset or empty. */
static const char *value_of(const char *name, size_t length) {
    char copy[128];
    const char *value;

    if (length >= sizeof copy)
        return NULL;
    memcpy(copy, name, length);
    copy[length] = 0;
    value = getenv(copy);
    return value && *value ? value : NULL;
}

static const char *first_set(const char *names) {
    const char *value = NULL;

    while (!value && *names) {
        size_t length = strcspn(names, " ");

        value = value_of(names, length);
        names += length + (names[length] == ' ');
    }
    return value;
}

/* The name in %q{NAME}, and its length, from the '{' on; 0 if it is not of that form. */
static size_t braced(const char *text) {
    const char *end = *text == '{' ? strchr(text, '}') : NULL;

    return end ? (size_t)(end - text) - 1 : 0;
}

void cuplug_template_directives(char *text, size_t room) {
    size_t length = 0;

    for (const struct cuplug_directive *directive = cuplug_directive_table; directive->text && length < room; directive++)
        length += (size_t)snprintf(text + length, room - length, "%s%s", length ? ", " : "", directive->text);
}

bool cuplug_template_check(const char *template, char *what, size_t room) {
    char right[80];

    for (const char *at = strchr(template, '%'); at; at = strchr(at + 2, '%')) {
        if (at[1] && find(at[1]) && (at[1] != 'q' || braced(at + 2)))
            continue;
        cuplug_template_directives(right, sizeof right);
        snprintf(what, room, "%%%.1s: %s (%s)", at + 1, at[1] == 'q' ? "no name behind it" : "no such directive", right);
        return false;
    }
    return true;
}

bool cuplug_template_expand(const char *variable, const char *template, char *path, size_t room) {
    struct output output = {.path = path, .room = room};
    const char *missing = NULL;

    for (const char *from = template; *from; from++) {
        const struct cuplug_directive *directive;
        char text[256] = "";
        const char *value = text;

        if (*from != '%' || !(directive = find(from[1]))) {
            put(&output, *from);
            continue;
        }
        switch (*++from) {
        case 'p':
            snprintf(text, sizeof text, "%ld", (long)getpid());
            break;
        case 'h':
            gethostname(text, sizeof text - 1);
            break;
        case 'e':
            value = program_invocation_short_name;
            break;
        case '%':
            value = "%";
            break;
        case 'q':
            value = value_of(from + 2, braced(from + 1));
            from += braced(from + 1) + 2;
            break;
        default:
            value = first_set(directive->variables);
        }
        if (!value)
            missing = missing ? missing : directive->text;
        put_value(&output, value ? value : "none");
    }
    put(&output, 0);
    if (output.length > room) {
        cuplug_log(CUPLUG_LOG_ERROR, "%s=%.200s: the path is longer than %zu bytes; nothing written", variable, template, room);
        return false;
    }
    if (missing)
        cuplug_log(CUPLUG_LOG_WARN, "%s=%.400s: the environment does not say what %s is; it becomes \"none\"", variable, template,
                   missing);
    return true;
}
