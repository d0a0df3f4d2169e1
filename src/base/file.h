/* Whole-file helpers with limits. Regular files only: a folder, a device or a pipe in the place of
 * a model file is refused before anything is read from it. */
#ifndef SMOE_BASE_FILE_H
#define SMOE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Opens for reading; *fd is the caller's (close), -1 after failure. *bytes may be NULL. extra_flags
 * goes to open(2) (O_DIRECT). */
int file_open_read(const char *path, int extra_flags, int *fd, uint64_t *bytes, smoe_error *err);
/* *text is the caller's (free), NUL-terminated; untouched on failure. */
int file_read_all(const char *path, uint64_t max_bytes, char **text, size_t *bytes,
                  smoe_error *err);
/* Reads exactly bytes at offset, resuming after short reads and signals. */
int file_read_at(int fd, const char *path, uint64_t offset, void *buf, size_t bytes,
                 smoe_error *err);
/* The same, but nothing behind it is read ahead: the page cache would hold megabytes that are read
 * past it, and a cgroup counts them as the process's. */
int file_read_only_at(int fd, const char *path, uint64_t offset, void *buf, size_t bytes,
                      smoe_error *err);
int file_write_at(int fd, const char *path, uint64_t offset, const void *buf, size_t bytes,
                  smoe_error *err);
bool file_exists(const char *path); /* anything of that name */
bool file_is_dir(const char *path);
/* DIR/NAME in out; false when it does not fit. */
bool file_join(char *out, size_t out_bytes, const char *dir, const char *name);

#define FILE_PATH_BYTES 4096

#endif
