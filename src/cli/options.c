/* Option tables; see options.h. Prints to stdout (help) and stderr (errors). */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static int complain(const command *c, const char *format,
                                                          ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "smoe %s: ", c->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "; see smoe %s --help\n", c->name);
    va_end(args);
    return -1;
}

bool parse_size(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGTP";
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || v < 0) {
        return false;
    }
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit) {
        v = ldexp(v, 10 * (int)(unit - units + 1));
        end++;
    }
    if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0 || strcmp(end, "b") == 0) {
        end += strlen(end);
    }
    if (*end || v >= 0x1p62) {
        return false;
    }
    *bytes = (uint64_t)v;
    return *bytes > 0; /* zero would mean "automatic" to the library */
}

static bool parse_number(const char *text, double min, double max, double *out) {
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && !*end && !errno && *out >= min && *out <= max;
}

static int choice_index(const char *choices, const char *text) {
    size_t n = strlen(text);
    int index = 0;
    for (const char *p = choices; *p; index++) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, text, n) == 0) {
            return index;
        }
        p += len + (p[len] == '|');
    }
    return -1;
}

static int bad_value(const command *c, const option *o, const char *text) {
    char want[160];
    if (o->kind == OPTION_INT || o->kind == OPTION_NUMBER) {
        snprintf(want, sizeof want, "%s from %.10g to %.10g",
                 o->kind == OPTION_INT ? "a whole number" : "a number", o->min, o->max);
    } else if (o->kind == OPTION_SIZE) {
        snprintf(want, sizeof want, "a size such as 512M or 8G");
    } else if (o->kind == OPTION_CHOICE) {
        snprintf(want, sizeof want, "one of %s", o->value);
    } else {
        snprintf(want, sizeof want, "a whole number");
    }
    fprintf(stderr, "smoe %s: --%s must be %s, not \"%s\"; see smoe %s --help\n", c->name, o->name,
            want, text, c->name);
    return -1;
}

static int set_value(const command *c, const option *o, const char *text) {
    double v;
    int index;
    char *end;
    if (o->given) {
        *o->given = true;
    }
    switch (o->kind) {
    case OPTION_TEXT:
        *(const char **)o->target = text;
        return 0;
    case OPTION_INT:
        if (!parse_number(text, o->min, o->max, &v) || v != floor(v)) {
            return bad_value(c, o, text);
        }
        *(int32_t *)o->target = (int32_t)v;
        return 0;
    case OPTION_NUMBER:
        if (!parse_number(text, o->min, o->max, &v)) {
            return bad_value(c, o, text);
        }
        *(float *)o->target = (float)v;
        return 0;
    case OPTION_SEED:
        errno = 0;
        *(uint64_t *)o->target = strtoull(text, &end, 10);
        return end == text || *end || errno || *text == '-' ? bad_value(c, o, text) : 0;
    case OPTION_SIZE:
        return parse_size(text, o->target) ? 0 : bad_value(c, o, text);
    case OPTION_CHOICE:
        index = choice_index(o->value, text);
        *(int *)o->target = index;
        return index < 0 ? bad_value(c, o, text) : 0;
    case OPTION_LIST: {
        option_list *list = o->target;
        if (list->n_item == OPTION_LIST_MAX) {
            return complain(c, "--%s given too often", o->name);
        }
        list->item[list->n_item++] = text;
        return 0;
    }
    case OPTION_FLAG:
    case OPTION_GROUP:
        break;
    }
    return 0;
}

static const option *find(const option *const *tables, const char *name, size_t n, char letter) {
    for (; *tables; tables++) {
        for (const option *o = *tables; o->name; o++) {
            if (o->kind == OPTION_GROUP) {
                continue;
            }
            if (letter ? o->letter == letter : strlen(o->name) == n && !memcmp(o->name, name, n)) {
                return o;
            }
        }
    }
    return NULL;
}

/* One argument that begins with a dash; *used counts a value taken from next. */
static int parse_dashed(const command *c, const option *const *tables, const char *arg,
                        const char *next, int *used) {
    const option *o;
    const char *value = NULL;
    *used = 0;
    if (arg[1] == '-') {
        size_t n = strcspn(arg + 2, "=");
        o = find(tables, arg + 2, n, 0);
        value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
    } else {
        o = find(tables, NULL, 0, arg[1]);
        value = arg[2] ? arg + 2 : NULL;
    }
    if (!o) {
        return complain(c, "unknown option %s", arg);
    }
    if (o->kind == OPTION_FLAG) {
        if (value) {
            return complain(c, "--%s takes no value", o->name);
        }
        *(bool *)o->target = true;
        return 0;
    }
    if (!value) {
        value = next;
        *used = 1;
    }
    if (!value) {
        return complain(c, "--%s needs a value: %s", o->name, o->value);
    }
    return set_value(c, o, value);
}

int options_parse(const command *c, const option *const *tables, int argc, char **argv,
                  const char **arguments) {
    int n = 0;
    bool plain = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!plain && strcmp(arg, "--") == 0) {
            plain = true;
            continue;
        }
        if (!plain && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            options_help(c, tables);
            return 1;
        }
        if (!plain && arg[0] == '-' && arg[1]) {
            int used;
            int rc = parse_dashed(c, tables, arg, i + 1 < argc ? argv[i + 1] : NULL, &used);
            if (rc) {
                return rc;
            }
            i += used;
            continue;
        }
        if (n == c->n_argument + c->n_optional) {
            return complain(c, "unexpected argument \"%s\"", arg);
        }
        arguments[n++] = arg;
    }
    if (n < c->n_argument) {
        return complain(c, "missing argument: %s", c->arguments);
    }
    return 0;
}

void options_help(const command *c, const option *const *tables) {
    printf("smoe %s %s [options]\n  %s\n", c->name, c->arguments, c->summary);
    if (c->details) {
        printf("\n%s\n", c->details);
    }
    for (; *tables; tables++) {
        for (const option *o = *tables; o->name; o++) {
            if (o->kind == OPTION_GROUP) {
                printf("\n%s\n", o->name);
                continue;
            }
            char left[80];
            char letter[8] = "    ";
            if (o->letter) {
                snprintf(letter, sizeof letter, "-%c, ", o->letter);
            }
            snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
            printf("  %-34s %s\n", left, o->help);
        }
    }
}
