/* The cache folder; see cache_dir.h. Never reports errors: a cache that cannot be kept is missed
 * and nothing more. */
#include "base/cache_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static bool make_dir(const char *path) {
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool cache_file_path(char *out, size_t out_bytes, const char *name, bool make) {
    char base[FILE_PATH_BYTES], dir[FILE_PATH_BYTES];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    /* the specification wants relative paths ignored */
    if (xdg && xdg[0] == '/') {
        if (snprintf(base, sizeof base, "%s", xdg) >= (int)sizeof base) {
            return false;
        }
    } else if (!home || home[0] != '/' || !file_join(base, sizeof base, home, ".cache")) {
        return false;
    }
    if (!file_join(dir, sizeof dir, base, "smoe") ||
        (make && (!make_dir(base) || !make_dir(dir)))) {
        return false;
    }
    return file_join(out, out_bytes, dir, name);
}

bool cache_file_replace(const char *path, const char *text, size_t bytes) {
    char draft[FILE_PATH_BYTES + 32];
    snprintf(draft, sizeof draft, "%s.%ld", path, (long)getpid());
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    bool is_written = file_write_at(fd, draft, 0, text, bytes, NULL) == 0;
    is_written = close(fd) == 0 && is_written && rename(draft, path) == 0;
    if (!is_written) {
        unlink(draft);
    }
    return is_written;
}
