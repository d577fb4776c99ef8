/*
 * log.h: one line to stderr (or CUPLUG_LOG_FILE), written in one piece, never to stdout, silent below the chosen level.
 */
#ifndef CUPLUG_LOG_H
#define CUPLUG_LOG_H

enum cuplug_log_level { CUPLUG_LOG_ERROR, CUPLUG_LOG_WARN, CUPLUG_LOG_INFO, CUPLUG_LOG_DEBUG };

/* Formats as printf does; "cuplug: " is put in front and a newline behind. Keeps errno. Lines over 1000 bytes are cut. */
void cuplug_log(enum cuplug_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
