/* Files being written; see out_file.h. Owns no state beyond the descriptors. */
#include "sculptor/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static ssize_t system_write(void *ctx, int fd, const void *buf, size_t bytes, uint64_t offset) {
    (void)ctx;
    return pwrite(fd, buf, bytes, (off_t)offset);
}

static int system_sync(void *ctx, int fd) {
    (void)ctx;
    return fsync(fd);
}

static int system_rename(void *ctx, const char *from, const char *to) {
    (void)ctx;
    return rename(from, to);
}

static int system_available(void *ctx, const char *dir, uint64_t *bytes) {
    (void)ctx;
    struct statvfs st;
    if (statvfs(dir, &st) != 0) {
        return -1;
    }
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

const write_ops write_ops_system = {
    .write = system_write,
    .sync = system_sync,
    .rename = system_rename,
    .available = system_available,
};

int out_open(out_file *f, const write_ops *ops, const char *path, smoe_error *err) {
    struct stat st;
    f->ops = ops;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (f->fd < 0) {
        return err_errno(err, errno, "cannot create %s", path);
    }
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        out_close(f);
        return err_set(err, SMOE_ERR_IO, "%s is not a file; remove it", path);
    }
    return SMOE_OK;
}

void out_close(out_file *f) {
    if (f->fd >= 0) {
        close(f->fd);
    }
    f->fd = -1;
}

static int write_error(const out_file *f, int errnum, smoe_error *err) {
    char why[128];
    return err_set(err, SMOE_ERR_IO,
                   "cannot write %s: %s; what is written stays, the same command resumes", f->path,
                   strerror_r(errnum, why, sizeof why));
}

int out_write(const out_file *f, uint64_t offset, const void *buf, size_t bytes, smoe_error *err) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = f->ops->write(f->ops->ctx, f->fd, (const char *)buf + done, bytes - done,
                                  offset + done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return write_error(f, n < 0 ? errno : ENOSPC, err);
        }
        done += (size_t)n;
    }
    return SMOE_OK;
}

int out_sync(const out_file *f, smoe_error *err) {
    return f->ops->sync(f->ops->ctx, f->fd) == 0 ? SMOE_OK : write_error(f, errno, err);
}

int out_truncate(const out_file *f, uint64_t bytes, smoe_error *err) {
    return ftruncate(f->fd, (off_t)bytes) == 0 ? SMOE_OK : write_error(f, errno, err);
}

int out_rename(const write_ops *ops, const char *from, const char *to, smoe_error *err) {
    if (ops->rename(ops->ctx, from, to) != 0) {
        return err_errno(err, errno, "cannot rename %s to %s", from, to);
    }
    return SMOE_OK;
}

int out_sync_dir(const write_ops *ops, const char *dir, smoe_error *err) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, errno, "cannot open folder %s", dir);
    }
    int rc = SMOE_OK;
    /* EINVAL: a file system that cannot sync folders keeps their order itself */
    if (ops->sync(ops->ctx, fd) != 0 && errno != EINVAL) {
        rc = err_errno(err, errno, "cannot sync folder %s", dir);
    }
    close(fd);
    return rc;
}

void out_dir_of(char *out, const char *path) {
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    n = n < FILE_PATH_BYTES ? n : FILE_PATH_BYTES - 1;
    memcpy(out, path, n);
    out[n] = '\0';
    if (n == 0) {
        memcpy(out, slash ? "/" : ".", 2);
    }
}
