/*
 * value.c: see value.h. No state, no locale.
 */
#include "value.h"

#include <string.h>

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool same_word(const char *word, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (lower(word[i]) != lower(text[i]))
            return false;
    return true;
}

bool cuplug_value_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void cuplug_value_trim(const char **text, size_t *length) {
    while (*length && cuplug_value_blank((*text)[*length - 1]))
        --*length;
    while (*length && cuplug_value_blank(**text))
        ++*text, --*length;
}

const char *cuplug_value_choice(const char *choices, const char *text, size_t length, int *index) {
    cuplug_value_trim(&text, &length);
    if (!length)
        return "empty";
    for (int i = 0; *choices; i++) {
        size_t size = strcspn(choices, "|");

        if (size == length && same_word(choices, text, length)) {
            *index = i;
            return NULL;
        }
        choices += size + (choices[size] == '|');
    }
    return "no such choice";
}

const char *cuplug_value_bool(const char *text, size_t length, bool *value) {
    int index;
    const char *wrong = cuplug_value_choice("0|no|off|false|1|yes|on|true", text, length, &index);

    if (!wrong)
        *value = index >= 4;
    else if (strcmp(wrong, "empty") != 0)
        wrong = "not a boolean";
    return wrong;
}

const char *cuplug_value_word(const char *text, size_t length) {
    if (!length)
        return "empty";
    for (size_t i = 0; i < length; i++)
        if (!is_digit(text[i]) && (lower(text[i]) < 'a' || lower(text[i]) > 'z') && !strchr("_.$", text[i]))
            return "not a name";
    return NULL;
}

/* K, M, G, T with what may follow: the power of two, 0 for no unit at all, -1 for anything else. */
static int unit_shift(const char *text, size_t length) {
    static const char letters[] = "kmgt";
    const char *letter;

    if (!length)
        return 0;
    letter = memchr(letters, lower(*text), 4);
    if (!letter || (length == 2 && !same_word("i", text + 1, 1) && !same_word("b", text + 1, 1)) ||
        (length == 3 && !same_word("ib", text + 1, 2)) || length > 3)
        return -1;
    return 10 * (int)(letter - letters + 1);
}

static const char *parse_size(const char *text, size_t length, uint64_t *bytes) {
    uint64_t number = 0;
    size_t digits = 0;
    int shift;

    if (!length)
        return "empty";
    if (*text == '-' || *text == '+')
        return "a sign is not allowed";
    if (length > 1 && text[0] == '0' && lower(text[1]) == 'x')
        return "hexadecimal is not allowed";
    for (; digits < length && is_digit(text[digits]); digits++)
        if (__builtin_mul_overflow(number, (uint64_t)10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[digits] - '0'), &number))
            return "too large";
    if (digits < length && (text[digits] == '.' || text[digits] == ','))
        return "decimals are not allowed";
    if (!digits)
        return "not a number";
    shift = unit_shift(text + digits, length - digits);
    if (shift < 0)
        return "no such unit";
    if (number > UINT64_MAX >> shift)
        return "too large";
    *bytes = number << shift;
    return NULL;
}

static const char *out_of_range(const char *range, uint64_t bytes) {
    const char *dots = range ? strstr(range, "..") : NULL;
    uint64_t bound;

    if (!dots)
        return NULL;
    if (!parse_size(range, (size_t)(dots - range), &bound) && bytes < bound)
        return "too small";
    if (!parse_size(dots + 2, strlen(dots + 2), &bound) && bytes > bound)
        return "too large";
    return NULL;
}

const char *cuplug_value_size(const char *range, const char *text, size_t length, uint64_t *bytes) {
    uint64_t number = 0;
    const char *wrong;

    cuplug_value_trim(&text, &length);
    wrong = parse_size(text, length, &number);
    if (!wrong)
        wrong = out_of_range(range, number);
    if (!wrong)
        *bytes = number;
    return wrong;
}

const char *cuplug_value_amount(const char *range, const char *text, size_t length, struct cuplug_amount *amount) {
    struct cuplug_amount read = {0};
    const char *wrong;

    cuplug_value_trim(&text, &length);
    if (length && text[length - 1] == '%') {
        length--;
        read.percent = true;
        wrong = length && !is_digit(text[length - 1]) ? "not a number" : cuplug_value_size("1..100", text, length, &read.value);
    } else {
        wrong = cuplug_value_size(range, text, length, &read.value);
    }
    if (!wrong)
        *amount = read;
    return wrong;
}

int cuplug_value_distance(const char *one, const char *other) {
    enum { MOST = 64 };
    int rows[3][MOST + 1], *before = rows[0], *last = rows[1], *now = rows[2];
    int length = (int)strnlen(one, MOST), width = (int)strnlen(other, MOST);

    for (int j = 0; j <= width; j++)
        last[j] = j;
    for (int i = 1; i <= length; i++) {
        int *spare = before;

        now[0] = i;
        for (int j = 1; j <= width; j++) {
            int best = last[j - 1] + (lower(one[i - 1]) != lower(other[j - 1]));

            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && lower(one[i - 1]) == lower(other[j - 2]) && lower(one[i - 2]) == lower(other[j - 1]) &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[width];
}
