/* Reading past the page cache; see direct_reader.h. */
#include "base/direct_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define ALIGN_BYTES 4096u
/* Small reads take this much, since the next ones usually follow; large ones no more than asked. */
#define LEAST_FILL_BYTES (256u << 10)
/* Buffered reads are dropped behind in pieces of this. */
#define DROP_BYTES (4u << 20)

int direct_reader_open(direct_reader *r, smoe_error *err) {
    *r = (direct_reader){.fd = -1};
    r->stage = aligned_alloc(ALIGN_BYTES, DIRECT_STAGE_BYTES);
    return r->stage ? SMOE_OK : err_no_memory(err, DIRECT_STAGE_BYTES);
}

void direct_reader_close(direct_reader *r) {
    if (r->stage && r->fd >= 0) {
        close(r->fd);
    }
    free(r->stage);
    *r = (direct_reader){.fd = -1};
}

static void change_file(direct_reader *r, const char *path) {
    if (r->path && strcmp(r->path, path) == 0) {
        r->path = path;
        return;
    }
    if (r->fd >= 0) {
        close(r->fd);
    }
    r->path = path;
    r->at_bytes = 0;
    r->is_direct = file_open_read(path, O_DIRECT, &r->fd, NULL, NULL) == SMOE_OK;
}

/* Whether the page cache has all of a part, as cachestat(2) says. Not by trying: since Linux 5.12 a
 * read with RWF_NOWAIT that finds nothing begins to read ahead, and so fills the cache. Kernels
 * before 6.5 cannot tell. */
static bool is_cached(int fd, uint64_t offset, size_t bytes) {
    enum { SYS_CACHESTAT = 451 }; /* on every architecture */
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct {
        uint64_t offset, bytes;
    } range = {offset, bytes};
    struct {
        uint64_t n_cached, n_dirty, n_writeback, n_evicted, n_recently_evicted;
    } pages = {0};
    uint64_t n_page = (offset + bytes - 1) / page_bytes - offset / page_bytes + 1;
    return syscall(SYS_CACHESTAT, fd, &range, &pages, 0u) == 0 && pages.n_cached >= n_page;
}

/* Bytes that the page cache has from offset on, copied to buf; stops at the first that it lacks. */
static size_t read_cached(int fd, uint64_t offset, void *buf, size_t bytes) {
    size_t done = 0;
    if (!is_cached(fd, offset, bytes)) {
        return 0;
    }
    while (done < bytes) {
        struct iovec part = {(char *)buf + done, bytes - done};
        ssize_t n = preadv2(fd, &part, 1, (off_t)(offset + done), RWF_NOWAIT);
        if (n <= 0) {
            break;
        }
        done += (size_t)n;
    }
    return done;
}

/* Fills the stage from the aligned block of offset on; false when the system refuses direct reads.
 */
static bool fill_stage(direct_reader *r, uint64_t offset, size_t bytes) {
    ssize_t n;
    size_t want = bytes < LEAST_FILL_BYTES ? LEAST_FILL_BYTES : bytes;
    want = want > DIRECT_STAGE_BYTES - ALIGN_BYTES ? DIRECT_STAGE_BYTES - ALIGN_BYTES : want;
    r->at = offset / ALIGN_BYTES * ALIGN_BYTES;
    r->at_bytes = 0;
    do {
        n = pread(r->fd, r->stage, (size_t)round_up(offset - r->at + want, ALIGN_BYTES),
                  (off_t)r->at);
    } while (n < 0 && errno == EINTR);
    r->at_bytes = n > 0 ? (uint64_t)n : 0;
    return r->at_bytes > offset - r->at;
}

static int read_dropping(const char *path, int fd, uint64_t offset, char *buf, size_t bytes,
                         smoe_error *err) {
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < DROP_BYTES ? bytes - done : DROP_BYTES;
        int rc = file_read_at(fd, path, offset + done, buf + done, n, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        (void)posix_fadvise(fd, (off_t)(offset + done), (off_t)n, POSIX_FADV_DONTNEED);
        done += n;
    }
    return SMOE_OK;
}

int direct_read(direct_reader *r, const char *path, int fd, uint64_t offset, void *buf,
                size_t bytes, smoe_error *err) {
    char *to = buf;
    change_file(r, path);
    while (bytes > 0) {
        bool is_staged = offset >= r->at && offset - r->at < r->at_bytes;
        if (!is_staged) {
            size_t cached = read_cached(fd, offset, to, bytes);
            offset += cached;
            to += cached;
            bytes -= cached;
            if (bytes == 0) {
                break;
            }
            if (!r->is_direct || !fill_stage(r, offset, bytes)) {
                /* also where the file ends early or the drive fails: this says so */
                return read_dropping(path, fd, offset, to, bytes, err);
            }
        }
        uint64_t skip = offset - r->at;
        size_t n = r->at_bytes - skip < bytes ? (size_t)(r->at_bytes - skip) : bytes;
        memcpy(to, r->stage + skip, n);
        offset += n;
        to += n;
        bytes -= n;
    }
    return SMOE_OK;
}
