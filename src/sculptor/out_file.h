/* Files being written, behind a small table of system calls so that tests can make them fail. */
#ifndef SMOE_SCULPTOR_OUT_FILE_H
#define SMOE_SCULPTOR_OUT_FILE_H

#include <sys/types.h>

#include "base/error.h"
#include "base/file.h"

/* Each returns what the system call of that name returns, with errno. */
typedef struct write_ops {
    ssize_t (*write)(void *ctx, int fd, const void *buf, size_t bytes, uint64_t offset);
    int (*sync)(void *ctx, int fd); /* fsync: files and folders */
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*available)(void *ctx, const char *dir, uint64_t *bytes); /* free for this user */
    void *ctx;
} write_ops;

extern const write_ops write_ops_system;

typedef struct out_file {
    const write_ops *ops;
    char path[FILE_PATH_BYTES];
    int fd; /* -1: closed */
} out_file;

/* Opens for reading and writing, creating it. f is the caller's (out_close), closed after failure.
 * path is shorter than FILE_PATH_BYTES. */
int out_open(out_file *f, const write_ops *ops, const char *path, smoe_error *err);
void out_close(out_file *f);
int out_write(const out_file *f, uint64_t offset, const void *buf, size_t bytes, smoe_error *err);
/* Returns when what was written is on the drive. */
int out_sync(const out_file *f, smoe_error *err);
int out_truncate(const out_file *f, uint64_t bytes, smoe_error *err);
int out_rename(const write_ops *ops, const char *from, const char *to, smoe_error *err);
/* Makes renames and removals in dir durable. */
int out_sync_dir(const write_ops *ops, const char *dir, smoe_error *err);
/* The folder of path, "." when it names none. out has FILE_PATH_BYTES. */
void out_dir_of(char *out, const char *path);

#endif
