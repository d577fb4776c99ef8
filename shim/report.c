/*
 * report.c: what the process did with device memory, when it ends: a summary on stderr (CUPLUG_REPORT) and a JSON file (CUPLUG_STATS). Makes no driver
 * call.
 */
#include "stats.h"

#include "backends/registry.h"
#include "config/options.h"
#include "config/template.h"
#include "context.h"
#include "log.h"
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text {
    char *bytes;
    size_t length, room;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *text, const char *format, ...) {
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(text->bytes + text->length, text->room - text->length, format, list);
    va_end(list);
    if (length > 0 && text->length + (size_t)length < text->room)
        text->length += (size_t)length;
}

static void put_counters(struct text *text, const struct cuplug_stats *stats) {
    for (int i = 0; i < CUPLUG_STAT_COUNT; i++)
        put(text, "%s\"%s\":%lld", i ? "," : "", cuplug_stats_name(i), (long long)stats->value[i]);
}

static void put_json(struct text *text) {
    const char *comma = "";
    struct cuplug_stats stats;

    put(text, "{\"schema\":1,\"pid\":%ld,\"totals\":{", (long)getpid());
    cuplug_stats_total(&stats);
    cuplug_backend_gauges(-1, -1, &stats);
    put_counters(text, &stats);
    put(text, "},\"backends\":[");
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++) {
        if (!cuplug_stats_backend(i, &stats) || !cuplug_stats_used(&stats))
            continue;
        cuplug_backend_gauges(i, -1, &stats);
        put(text, "%s{\"name\":\"%s\",", comma, cuplug_backend(i)->name);
        put_counters(text, &stats);
        put(text, "}");
        comma = ",";
    }
    put(text, "],\"devices\":[");
    comma = "";
    for (int i = 0; cuplug_stats_device(i, &stats); i++) {
        if (!cuplug_stats_used(&stats))
            continue;
        cuplug_backend_gauges(-1, i, &stats);
        put(text, "%s{\"device\":%d,", comma, i);
        put_counters(text, &stats);
        put(text, "}");
        comma = ",";
    }
    put(text, "]}\n");
}

static bool write_all(int fd, const struct text *text) {
    for (size_t done = 0; done < text->length;) {
        ssize_t wrote = write(fd, text->bytes + done, text->length - done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        done += (size_t)wrote;
    }
    return true;
}

/* Writes a new file beside and links it to its name, so that a reader sees it whole, and a file that is there already is never lost: then
 * .1, .2 … is appended. */
static void write_file(const char *template, const struct text *text) {
    char path[PATH_MAX - 32], temporary[PATH_MAX], name[PATH_MAX];
    int fd, error = 0;

    if (!cuplug_template_expand("CUPLUG_STATS", template, path, sizeof path))
        return;
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) {
        cuplug_log(CUPLUG_LOG_ERROR, "CUPLUG_STATS=%s: cannot create %s: %s", template, temporary, strerror(errno));
        return;
    }
    if (!write_all(fd, text))
        error = errno;
    close(fd);
    snprintf(name, sizeof name, "%s", path);
    for (int i = 1; !error && link(temporary, name) != 0; i++) {
        if (errno != EEXIST || i > 9999)
            error = errno;
        else
            snprintf(name, sizeof name, "%s.%d", path, i);
    }
    unlink(temporary);
    if (error)
        cuplug_log(CUPLUG_LOG_ERROR, "CUPLUG_STATS=%s: cannot write %s: %s", template, name, strerror(error));
}

static double mib(int64_t bytes) {
    return (double)bytes / (1 << 20);
}

#define VALUE(stats, field) ((long long)(stats)->value[CUPLUG_STAT_##field])

static void put_line(struct text *text, const char *name, const struct cuplug_stats *stats) {
    put(text, "cuplug: %-8s %10lld %10lld %8lld %10.1f %10.1f %11lld %8lld\n", name, VALUE(stats, allocations), VALUE(stats, frees),
        VALUE(stats, live_blocks), mib(VALUE(stats, peak_live_bytes)), mib(VALUE(stats, peak_reserved_bytes)),
        VALUE(stats, driver_allocs) + VALUE(stats, driver_frees), VALUE(stats, fences));
}

/* What the user may have expected to see served. */
static void put_passed(struct text *text, const char *how, long long bytes, long long calls) {
    if (calls)
        put(text, "cuplug: %lld bytes %s, not routed (%lld allocations)\n", bytes, how, calls);
}

static void put_summary(struct text *text) {
    struct cuplug_stats stats;

    put(text, "cuplug: device memory of %s (pid %ld), MiB\n", program_invocation_short_name, (long)getpid());
    put(text, "cuplug: %-8s %10s %10s %8s %10s %10s %11s %8s\n", "backend", "allocs", "frees", "live", "peak live", "peak resvd", "driver calls",
        "fences");
    for (int i = 0; i < CUPLUG_BACKEND_COUNT; i++)
        if (cuplug_stats_backend(i, &stats) && cuplug_stats_used(&stats))
            put_line(text, cuplug_backend(i)->name, &stats);
    cuplug_stats_total(&stats);
    put_line(text, "total", &stats);
    if (VALUE(&stats, failed))
        put(text, "cuplug: %lld allocations failed\n", VALUE(&stats, failed));
    put_passed(text, "via VMM", VALUE(&stats, vmm_bytes), VALUE(&stats, vmm_allocs));
    put_passed(text, "in CUDA arrays", VALUE(&stats, array_bytes), VALUE(&stats, array_allocs));
    if (VALUE(&stats, lost_blocks))
        put(text, "cuplug: %lld allocations were lost with their context\n", VALUE(&stats, lost_blocks));
}

void cuplug_report_write(void) {
    struct text text = {.room = 256 << 10};
    struct cuplug_stats stats;

    if (!cuplug_options.report && !cuplug_options.stats)
        return;
    cuplug_stats_total(&stats);
    if (!cuplug_context_any() && !cuplug_stats_used(&stats))
        return;
    text.bytes = cuplug_pages_map(text.room);
    if (!text.bytes)
        return;
    if (cuplug_options.report) {
        put_summary(&text);
        write_all(STDERR_FILENO, &text);
        text.length = 0;
    }
    if (cuplug_options.stats) {
        put_json(&text);
        write_file(cuplug_options.stats, &text);
    }
    cuplug_pages_unmap(text.bytes, text.room);
}
