/* Told to the static analyzer only (see `tidy` in the Makefile): the error helpers never return 0.
 * It looks at one file at a time and would otherwise follow "failed, yet returned success". */
#include "base/error.h"

#define err_set(err, code, ...)     (err_set(err, code, __VA_ARGS__), (int)(code))
#define err_prefix(err, code, ...)  (err_prefix(err, code, __VA_ARGS__), (int)(code))
#define err_errno(err, errnum, ...) (err_errno(err, errnum, __VA_ARGS__), (int)SMOE_ERR_IO)
#define err_no_memory(err, bytes)   (err_no_memory(err, bytes), (int)SMOE_ERR_MEMORY)
