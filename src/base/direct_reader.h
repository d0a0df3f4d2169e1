/* Reading large files once, front to back, without leaving them in the page cache.
 *
 * What is cached already is taken from there; the rest is read with O_DIRECT through a stage of a
 * few MiB, or, where the file system refuses that, through the page cache and dropped behind. So
 * loading takes no memory beyond its own, also under a cgroup's limit, which counts cached pages.
 */
#ifndef SMOE_BASE_DIRECT_READER_H
#define SMOE_BASE_DIRECT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct direct_reader {
    uint8_t *stage; /* DIRECT_STAGE_BYTES */
    int fd;         /* O_DIRECT, of the file below; -1: none */
    const char *path;
    bool is_direct;    /* of this file */
    uint64_t at;       /* what of the file is in the stage */
    uint64_t at_bytes; /* 0: nothing */
} direct_reader;

#define DIRECT_STAGE_BYTES (4u << 20)

/* The caller's direct_reader_close, which takes a zeroed reader too. */
int direct_reader_open(direct_reader *r, smoe_error *err);
void direct_reader_close(direct_reader *r);
/* Exactly bytes at offset of path, whose buffered descriptor is fd. path must stay valid until the
 * next call. Cheap when the reads of one file follow one another. */
int direct_read(direct_reader *r, const char *path, int fd, uint64_t offset, void *buf,
                size_t bytes, smoe_error *err);

#endif
