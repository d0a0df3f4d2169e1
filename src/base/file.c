/* Whole-file helpers; see file.h. Owns no state. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open_read(const char *path, int extra_flags, int *fd, uint64_t *bytes, smoe_error *err) {
    struct stat st;
    *fd = -1;
    /* O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | extra_flags);
    if (f < 0) {
        return err_errno(err, errno, "cannot open %s", path);
    }
    if (fstat(f, &st) != 0) {
        int e = errno;
        close(f);
        return err_errno(err, e, "cannot look at %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        close(f);
        return err_set(err, SMOE_ERR_FORMAT, "%s is not a file", path);
    }
    *fd = f;
    if (bytes) {
        *bytes = (uint64_t)st.st_size;
    }
    return SMOE_OK;
}

int file_read_at(int fd, const char *path, uint64_t offset, void *buf, size_t bytes,
                 smoe_error *err) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)buf + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_errno(err, errno, "cannot read %s at byte %llu", path,
                             (unsigned long long)(offset + done));
        }
        if (n == 0) {
            return err_set(err, SMOE_ERR_FORMAT, "%s ends at byte %llu, %zu bytes too early", path,
                           (unsigned long long)(offset + done), bytes - done);
        }
        done += (size_t)n;
    }
    return SMOE_OK;
}

int file_read_only_at(int fd, const char *path, uint64_t offset, void *buf, size_t bytes,
                      smoe_error *err) {
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    int rc = file_read_at(fd, path, offset, buf, bytes, err);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
    return rc;
}

int file_write_at(int fd, const char *path, uint64_t offset, const void *buf, size_t bytes,
                  smoe_error *err) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pwrite(fd, (const char *)buf + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return err_errno(err, n < 0 ? errno : ENOSPC, "cannot write %s", path);
        }
        done += (size_t)n;
    }
    return SMOE_OK;
}

int file_read_all(const char *path, uint64_t max_bytes, char **text, size_t *bytes,
                  smoe_error *err) {
    int fd;
    uint64_t size;
    int rc = file_open_read(path, 0, &fd, &size, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (size > max_bytes) {
        close(fd);
        return err_set(err, SMOE_ERR_FORMAT, "%s has %llu bytes, more than the limit of %llu", path,
                       (unsigned long long)size, (unsigned long long)max_bytes);
    }
    char *buf = malloc((size_t)size + 1);
    if (!buf) {
        close(fd);
        return err_set(err, SMOE_ERR_MEMORY, "out of memory reading %s", path);
    }
    rc = file_read_at(fd, path, 0, buf, (size_t)size, err);
    close(fd);
    if (rc != SMOE_OK) {
        free(buf);
        return rc;
    }
    buf[size] = '\0';
    *text = buf;
    *bytes = (size_t)size;
    return SMOE_OK;
}

bool file_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_join(char *out, size_t out_bytes, const char *dir, const char *name) {
    size_t n = strlen(dir);
    const char *slash = n && dir[n - 1] == '/' ? "" : "/";
    int need = snprintf(out, out_bytes, "%s%s%s", dir, slash, name);
    return need >= 0 && (size_t)need < out_bytes;
}
