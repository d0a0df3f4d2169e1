/* Errors as values.
 *
 * The place that knows what went wrong fills the caller's smoe_error once and returns its code;
 * everything above hands the code on. Nothing here prints.
 */
#ifndef SMOE_BASE_ERROR_H
#define SMOE_BASE_ERROR_H

#include "smoe.h"

/* Fills *err (NULL allowed) and returns code. Control bytes and invalid UTF-8 in the result are
 * replaced, so that a hostile name can neither break a line nor steer a terminal. */
int err_set(smoe_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* err_set with ": " and the text of errnum appended; SMOE_ERR_IO, or SMOE_ERR_MEMORY for ENOMEM. */
int err_errno(smoe_error *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the text already there; returns err's code (or code when err is NULL). */
int err_prefix(smoe_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "out of memory" for an allocation of so many bytes. */
int err_no_memory(smoe_error *err, uint64_t bytes);

#endif
