/* Lines for a person, through the callback of whoever opened the library. The library itself
 * writes to no stream. */
#ifndef SMOE_BASE_LOG_H
#define SMOE_BASE_LOG_H

#include "smoe.h"

typedef struct log_sink {
    smoe_log_fn fn; /* NULL: lines are dropped */
    void *user;
} log_sink;

void log_line(const log_sink *sink, smoe_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "1.5 GiB", "16 KiB", "12 B" into out[24]; returns out. */
const char *format_bytes(char out[24], uint64_t bytes);

#endif
