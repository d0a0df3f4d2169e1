/* Log lines; see log.h. Owns no state. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const log_sink *sink, smoe_log_level level, const char *format, ...) {
    if (!sink || !sink->fn) {
        return;
    }
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    sink->fn(sink->user, level, line);
}

const char *format_bytes(char out[24], uint64_t bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u + 1 < sizeof unit / sizeof *unit) {
        v /= 1024;
        u++;
    }
    int decimals = u == 0 || v >= 100 ? 0 : v >= 10 ? 1 : 2;
    snprintf(out, 24, "%.*f %s", decimals, v, unit[u]);
    return out;
}
