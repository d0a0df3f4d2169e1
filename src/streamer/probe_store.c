/* What probes found, remembered in one small file of lines; see probe.h.
 *
 * Owns the file's format: a line of tab-separated fields, the key first, the newest line last. A
 * line that does not read as one is dropped. Never reports errors. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/cache_dir.h"
#include "base/file.h"
#include "base/mem.h"
#include "streamer/probe.h"

#define STORE_NAME      "drives.tsv"
#define STORE_MAX_BYTES (64u << 10)
#define STORE_LINES     64
#define KEY_BYTES       256

/* Whatever makes a measurement another one. The time catches a file that was moved to other blocks
 * under the same inode. */
static bool make_key(char key[KEY_BYTES], const probe_config *c) {
    struct stat st;
    struct utsname system;
    if (stat(probe_path(c, 0), &st) != 0 || uname(&system) != 0) {
        return false;
    }
    int n = snprintf(key, KEY_BYTES, "%llx:%llu:%llu:%lld:%.64s:%s+%s:%d:%d:%u",
                     (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                     (unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec, system.release,
                     c->ops[0] ? c->ops[0]->name : "", c->ops[1] ? c->ops[1]->name : "",
                     (int)c->direct, c->depth, c->read_bytes);
    return n > 0 && n < KEY_BYTES && !strpbrk(key, "\t\n");
}

static const io_ops *ops_named(const probe_config *c, const char *name) {
    for (int32_t i = 0; i < 2 && c->ops[i]; i++) {
        if (strcmp(c->ops[i]->name, name) == 0) {
            return c->ops[i];
        }
    }
    return NULL;
}

/* What follows the key in a line. */
static bool parse_result(probe_result *out, const probe_config *c, const char *text) {
    char name[16];
    int direct, rotating;
    probe_result r = {.is_remembered = true};
    if (sscanf(text, "%15s\t%d\t%" SCNd32 "\t%" SCNu32 "\t%lf\t%lf\t%lf\t%lf\t%lf\t%lf\t%d", name,
               &direct, &r.depth, &r.read_bytes, &r.bytes_per_s, &r.busy_bytes_per_s,
               &r.single_bytes_per_s, &r.other_bytes_per_s, &r.buffered_bytes_per_s, &r.latency_ns,
               &rotating) != 11) {
        return false;
    }
    r.ops = ops_named(c, name);
    r.direct = direct != 0;
    r.is_rotating = rotating != 0;
    bool is_sane = r.ops && r.depth >= 1 && r.depth <= 256 && r.read_bytes >= IO_ALIGN_BYTES &&
                   r.read_bytes <= 1u << 30 && r.read_bytes % IO_ALIGN_BYTES == 0 &&
                   r.bytes_per_s > 0 && r.bytes_per_s < 1e13;
    if (is_sane) {
        *out = r;
    }
    return is_sane;
}

static char *load_store(char *path, size_t path_bytes, bool make) {
    char *text = NULL;
    size_t bytes;
    if (!cache_file_path(path, path_bytes, STORE_NAME, make) ||
        file_read_all(path, STORE_MAX_BYTES, &text, &bytes, NULL) != SMOE_OK) {
        return NULL;
    }
    return text;
}

bool probe_recall(probe_result *out, const probe_config *config) {
    char key[KEY_BYTES], path[FILE_PATH_BYTES];
    bool found = false;
    if (!make_key(key, config)) {
        return false;
    }
    char *text = load_store(path, sizeof path, false);
    size_t n = strlen(key);
    char *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, key, n) == 0 && line[n] == '\t') {
            found = parse_result(out, config, line + n + 1) || found;
        }
    }
    free(text);
    return found;
}

void probe_remember(const probe_result *r, const probe_config *config) {
    char key[KEY_BYTES], path[FILE_PATH_BYTES];
    if (r->bytes_per_s <= 0 || !make_key(key, config)) {
        return;
    }
    path[0] = '\0';
    char *text = load_store(path, sizeof path, true);
    byte_buf b = {.max_bytes = STORE_MAX_BYTES};
    size_t n = strlen(key);
    int32_t n_line = 0;
    for (const char *p = text; p && *p; p++) {
        n_line += *p == '\n';
    }
    char *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        bool is_ours = strncmp(line, key, n) == 0 && line[n] == '\t';
        if (n_line-- < STORE_LINES && !is_ours) {
            (void)buf_printf(&b, NULL, "%s\n", line);
        }
    }
    int rc = buf_printf(&b, NULL, "%s\t%s\t%d\t%d\t%u\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\n",
                        key, r->ops->name, r->direct, r->depth, r->read_bytes, r->bytes_per_s,
                        r->busy_bytes_per_s, r->single_bytes_per_s, r->other_bytes_per_s,
                        r->buffered_bytes_per_s, r->latency_ns, r->is_rotating);
    if (rc == SMOE_OK && path[0]) {
        (void)cache_file_replace(path, b.data, b.bytes);
    }
    buf_free(&b);
    free(text);
}
