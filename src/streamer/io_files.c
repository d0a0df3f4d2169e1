/* Opening files for a back end; see io_files.h. Reads one block of each with O_DIRECT, to learn
 * whether that works, and nothing else. */
#include "streamer/io_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static int refused(const char *path, int errnum, smoe_error *err) {
    char why[128];
    return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: its file system refuses O_DIRECT (%s)", path,
                   strerror_r(errnum, why, sizeof why));
}

/* Some file systems take the flag and refuse the read, and some drives want a coarser alignment
 * than ours: one block at an odd multiple of ours, into memory at one, finds out. */
static int try_direct(int fd, const char *path, uint64_t bytes, smoe_error *err) {
    uint8_t *buf = aligned_alloc(2 * IO_ALIGN_BYTES, 2 * IO_ALIGN_BYTES);
    if (!buf) {
        return err_no_memory(err, 2 * IO_ALIGN_BYTES);
    }
    off_t at = bytes > IO_ALIGN_BYTES ? IO_ALIGN_BYTES : 0;
    ssize_t n;
    do {
        n = pread(fd, buf + IO_ALIGN_BYTES, IO_ALIGN_BYTES, at);
    } while (n < 0 && errno == EINTR);
    int errnum = errno;
    free(buf);
    if (n >= 0) {
        return SMOE_OK;
    }
    if (errnum == EINVAL || errnum == EOPNOTSUPP) {
        return refused(path, errnum, err);
    }
    return err_errno(err, errnum, "cannot read %s", path);
}

static int open_one(int *fd, const char *path, bool direct, smoe_error *err) {
    uint64_t bytes = 0;
    int rc = file_open_read(path, 0, fd, &bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    /* This clears O_NONBLOCK too, with which old kernels' io_uring gives up instead of waiting. */
    if (fcntl(*fd, F_SETFL, direct ? O_DIRECT : 0) != 0) {
        int errnum = errno;
        return direct ? refused(path, errnum, err)
                      : err_errno(err, errnum, "cannot set up %s", path);
    }
    return direct ? try_direct(*fd, path, bytes, err) : SMOE_OK;
}

int io_files_open(int **out, const io_config *config, smoe_error *err) {
    *out = NULL;
    int *fd = mem_array((size_t)config->n_file, sizeof *fd);
    if (!fd) {
        return err_no_memory(err, (uint64_t)config->n_file * sizeof *fd);
    }
    memset(fd, 0xff, (size_t)config->n_file * sizeof *fd);
    for (int32_t i = 0; i < config->n_file; i++) {
        int rc = open_one(&fd[i], config->path[i], config->direct, err);
        if (rc != SMOE_OK) {
            io_files_close(fd, config->n_file);
            return rc;
        }
    }
    *out = fd;
    return SMOE_OK;
}

void io_files_close(int *fd, int32_t n_file) {
    for (int32_t i = 0; fd && i < n_file; i++) {
        if (fd[i] >= 0) {
            close(fd[i]);
        }
    }
    free(fd);
}
