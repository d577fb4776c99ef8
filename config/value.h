/*
 * value.h: what is written in an option, read: booleans, choices, sizes, percentages. Pure functions over `length` bytes of
 * `text`; the whole text must fit the grammar, blanks around it excepted. They return NULL, or in a few words what is wrong; then
 * nothing is stored.
 */
#ifndef CUPLUG_VALUE_H
#define CUPLUG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes, or a percentage (1 to 100) of something that the option names. */
struct cuplug_amount {
    bool percent;
    uint64_t value;
};

/* It in bytes. */
static inline uint64_t cuplug_amount_of(struct cuplug_amount amount, uint64_t total) {
    return amount.percent ? total / 100 * amount.value + total % 100 * amount.value / 100 : amount.value;
}

/* 1, yes, on, true, 0, no, off, false, in any case. */
const char *cuplug_value_bool(const char *text, size_t length, bool *value);

/* The index of one of the words in `choices` ("a|b|c"), in any case. */
const char *cuplug_value_choice(const char *choices, const char *text, size_t length, int *index);

/* A symbol's name: letters, digits, '_', '.', '$'. */
const char *cuplug_value_word(const char *text, size_t length);

/* A decimal number of bytes, or a number directly followed by K, M, G or T, alone or as Ki, KiB or KB, in any case: powers of
 * 1024. Leading zeros mean nothing. `range` is "LEAST..MOST" in the same notation, MOST may be missing; NULL for any. */
const char *cuplug_value_size(const char *range, const char *text, size_t length, uint64_t *bytes);

/* A size as above, or 1% to 100%. */
const char *cuplug_value_amount(const char *range, const char *text, size_t length, struct cuplug_amount *amount);

/* Is it a blank (space, tab, end of line …)? In any locale. */
bool cuplug_value_blank(char c);

/* Cuts blanks off both ends. */
void cuplug_value_trim(const char **text, size_t *length);

/* How many letters one must change, insert, remove or swap to make one word of the other; letter case does not count. At most 64
 * letters each. */
int cuplug_value_distance(const char *one, const char *other);

#endif
