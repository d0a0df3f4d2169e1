/* The malformed inputs of tests/data/bad: a table of verdicts and folders to open. */
#ifndef SMOE_TESTS_BAD_CASES_H
#define SMOE_TESTS_BAD_CASES_H

#include "test.h"

typedef enum bad_verdict {
    BAD_REFUSE, /* must fail with a message */
    BAD_ACCEPT,
    BAD_EITHER, /* either, but without a crash or a hang */
    BAD_PART    /* belongs to another row */
} bad_verdict;

typedef struct bad_case {
    char file[160]; /* below tests/data/bad */
    bad_verdict verdict;
} bad_case;

/* The rows whose file begins with prefix ("config/"), without parts. *out is malloc'ed; returns how
 * many, at least one. */
size_t bad_cases(bad_case **out, const char *prefix);

/* Builds a checkpoint folder in the test's folder: the valid model with the case's file or files in
 * place of its own. Returns its path, malloc'ed. */
char *bad_case_folder(const bad_case *c);

/* Holds an outcome to the verdict: rc and err as some opener returned them. */
void bad_case_check(const bad_case *c, int rc, const smoe_error *err);

#endif
