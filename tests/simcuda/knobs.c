/*
 * knobs.c — the SIMCUDA_ environment: what the simulated machine is, what goes wrong, and the log.
 *
 *   SIMCUDA_DEVICES=n  SIMCUDA_MEMORY=bytes (K M G, per device)  SIMCUDA_DRIVER=version  SIMCUDA_EXIT=crash  SIMCUDA_MANAGED=basic
 *   SIMCUDA_FAIL=symbol:n[-[m]]=code,…   the n-th (to m-th, or all later) calls of an export return code and do nothing
 *   SIMCUDA_DELAY=symbol=microseconds,…  each call of it takes that much longer
 *   SIMCUDA_LOG=file                     one line a call: name arguments -> code result
 */
#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim_knobs sim_knobs = {.devices = 1, .driver = 13000, .memory = (size_t)16 << 30};

struct strike {
    enum sim_row row;
    unsigned long first, last;
    CUresult code;
    unsigned long microseconds;
    unsigned long calls;
    struct strike *next;
};
static struct strike *strikes; /* what the program no longer wants stays: another thread may be reading it */
static unsigned long counted[SIM_ROWS];
static int log_fd = -1;

static size_t parse_size(const char *text) {
    char *end;
    size_t n = strtoull(text, &end, 0);
    switch (*end) {
    case 'k':
    case 'K':
        return n << 10;
    case 'm':
    case 'M':
        return n << 20;
    case 'g':
    case 'G':
        return n << 30;
    default:
        return n;
    }
}

static void complain(const char *variable, const char *what) {
    fprintf(stderr, "simcuda: %s: cannot use \"%s\"\n", variable, what);
}

static enum sim_row row_of(const char *name) {
    for (int i = 0; i < SIM_ROWS; i++)
        if (strcmp(sim_symbols[i].export, name) == 0)
            return (enum sim_row)i;
    return SIM_ROWS;
}

static void add_strike(const char *variable, char *item, bool fail) {
    struct strike s = {.last = ~0ul};
    char *value = strchr(item, '='), *range;
    if (!value) {
        complain(variable, item);
        return;
    }
    *value++ = '\0';
    if (fail) {
        range = strchr(item, ':');
        if (range) {
            *range++ = '\0';
            s.first = strtoul(range, &range, 10);
            s.last = *range != '-' ? s.first : range[1] ? strtoul(range + 1, NULL, 10) : ~0ul;
        }
        s.code = (CUresult)strtol(value, NULL, 0);
    } else {
        s.microseconds = strtoul(value, NULL, 10);
    }
    s.row = row_of(item);
    if (s.row == SIM_ROWS) {
        complain(variable, item);
        return;
    }
    struct strike *kept = malloc(sizeof(*kept));
    *kept = s;
    kept->next = strikes;
    __atomic_store_n(&strikes, kept, __ATOMIC_RELEASE);
}

static void parse_strikes(const char *variable, const char *text, bool fail) {
    char *copy = text ? strdup(text) : NULL, *save = NULL;
    for (char *item = copy ? strtok_r(copy, ",", &save) : NULL; item; item = strtok_r(NULL, ",", &save))
        add_strike(variable, item, fail);
    free(copy);
}

void sim_knobs_load(void) {
    const char *text;
    if ((text = getenv("SIMCUDA_DEVICES")) && *text)
        sim_knobs.devices = atoi(text) > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : atoi(text);
    if ((text = getenv("SIMCUDA_MEMORY")) && *text)
        sim_knobs.memory = parse_size(text);
    if ((text = getenv("SIMCUDA_DRIVER")) && *text)
        sim_knobs.driver = atoi(text);
    text = getenv("SIMCUDA_EXIT");
    sim_knobs.exit_crash = text && strcmp(text, "crash") == 0;
    text = getenv("SIMCUDA_MANAGED");
    sim_knobs.basic_managed = text && strcmp(text, "basic") == 0;
    parse_strikes("SIMCUDA_FAIL", getenv("SIMCUDA_FAIL"), true);
    parse_strikes("SIMCUDA_DELAY", getenv("SIMCUDA_DELAY"), false);
    if ((text = getenv("SIMCUDA_LOG")) && *text) {
        log_fd = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (log_fd < 0)
            complain("SIMCUDA_LOG", strerror(errno));
    }
}

void sim_knobs_fail(const char *items) {
    if (items)
        parse_strikes("simcuda_fail", items, true);
    else
        __atomic_store_n(&strikes, NULL, __ATOMIC_RELEASE);
}

unsigned long sim_knobs_calls(enum sim_row row) {
    return __atomic_load_n(&counted[row], __ATOMIC_RELAXED);
}

bool sim_knobs_strike(enum sim_row row, CUresult *result) {
    bool struck = false;
    __atomic_add_fetch(&counted[row], 1, __ATOMIC_RELAXED);
    for (struct strike *s = __atomic_load_n(&strikes, __ATOMIC_ACQUIRE); s; s = s->next) {
        if (s->row != row)
            continue;
        if (s->microseconds) {
            struct timespec t = {(time_t)(s->microseconds / 1000000), (long)(s->microseconds % 1000000) * 1000};
            while (nanosleep(&t, &t) != 0 && errno == EINTR)
                ;
            continue;
        }
        unsigned long call = __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
        if (call >= s->first && call <= s->last) {
            *result = s->code;
            struck = true;
        }
    }
    return struck;
}

bool sim_log_wanted(void) {
    return log_fd >= 0;
}

void sim_log(enum sim_row row, CUresult result, const void *out, size_t out_size, const char *format, ...) {
    char line[512];
    int saved = errno;
    size_t room = sizeof(line) - 64;
    size_t n = (size_t)snprintf(line, room, "%s ", sim_symbols[row].export);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, room - n, format, args);
    va_end(args);
    n += m > 0 ? (size_t)m : 0;
    if (n >= room)
        n = room - 1;
    if (m > 0)
        line[n++] = ' ';
    n += (size_t)snprintf(line + n, sizeof(line) - n, "-> %d", (int)result);
    if (out && result == CUDA_SUCCESS && out_size == sizeof(void *))
        n += (size_t)snprintf(line + n, sizeof(line) - n, " %p", *(void *const *)out);
    else if (out && result == CUDA_SUCCESS && out_size == sizeof(int))
        n += (size_t)snprintf(line + n, sizeof(line) - n, " %d", *(const int *)out);
    line[n++] = '\n';
    if (write(log_fd, line, n) < 0)
        complain("SIMCUDA_LOG", strerror(errno));
    errno = saved;
}
