/* Command-line options from one table: the same rows parse arguments and print the help text.
 *
 * Both --name VALUE and --name=VALUE work; "--" ends options; "-" is a plain argument. An option
 * that is not in the table, a value that does not parse or is out of range, or a missing value is
 * an error that names it.
 */
#ifndef SMOE_CLI_OPTIONS_H
#define SMOE_CLI_OPTIONS_H

#include "smoe.h"

enum option_kind {
    OPTION_FLAG,   /* bool *: set to true */
    OPTION_TEXT,   /* const char ** */
    OPTION_INT,    /* int32_t *, min to max */
    OPTION_SEED,   /* uint64_t * */
    OPTION_NUMBER, /* float *, min to max */
    OPTION_SIZE,   /* uint64_t *: bytes with K, M, G, T (powers of 1024) */
    OPTION_CHOICE, /* int *: index into the names in `choices`, "a|b|c" */
    OPTION_LIST,   /* option_list *: may be given several times */
    OPTION_GROUP   /* a heading in the help text */
};

enum { OPTION_LIST_MAX = 32 };

typedef struct option_list {
    const char *item[OPTION_LIST_MAX];
    size_t n_item;
} option_list;

typedef struct option {
    enum option_kind kind;
    char letter;       /* 0: none */
    const char *name;  /* without dashes; the heading of a group */
    const char *value; /* name of the value in the help text; the choices of OPTION_CHOICE */
    void *target;
    double min, max; /* of OPTION_INT and OPTION_NUMBER */
    const char *help;
    bool *given; /* set when the option was used; NULL: nobody asks */
} option;

typedef struct command {
    const char *name;
    const char *arguments; /* "MODEL" */
    const char *summary;
    const char *details; /* a paragraph; may be NULL */
    int n_argument;      /* so many plain arguments, */
    int n_optional;      /* and at most so many more */
    int (*run)(const struct command *self, int argc, char **argv);
} command;

/* Parses argv[0..argc) by tables (each ended by a row without a name; the list ended by NULL).
 * Plain arguments are left in arguments[0..n_argument + n_optional); optional ones that are not
 * there stay as they were. Returns 0; a negative number after an error that it printed; 1 after
 * --help, which it printed. */
int options_parse(const command *c, const option *const *tables, int argc, char **argv,
                  const char **arguments);
void options_help(const command *c, const option *const *tables);

/* "1.5G" to bytes; false when malformed, negative or too large. */
bool parse_size(const char *text, uint64_t *bytes);

#endif
