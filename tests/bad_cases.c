/* The malformed inputs of tests/data/bad; see bad_cases.h. */
#include "bad_cases.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

static bool parse_row(char *line, bad_case *out) {
    static const char *const names[] = {"refuse", "accept", "either", "part"};
    char *tab = strchr(line, '\t');
    char *end = tab ? strchr(tab + 1, '\t') : NULL;
    if (!end) {
        return false;
    }
    *tab = *end = '\0';
    snprintf(out->file, sizeof out->file, "%s", line);
    for (int i = 0; i < 4; i++) {
        if (strcmp(tab + 1, names[i]) == 0) {
            out->verdict = (bad_verdict)i;
            return true;
        }
    }
    return false;
}

size_t bad_cases(bad_case **out, const char *prefix) {
    size_t n = 0;
    char *text = test_read_file(test_data("bad/cases.tsv"), NULL);
    char *save = NULL;
    *out = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        bad_case c;
        if (strncmp(line, prefix, strlen(prefix)) != 0 || !parse_row(line, &c) ||
            c.verdict == BAD_PART) {
            continue;
        }
        *out = realloc(*out, (n + 1) * sizeof **out);
        (*out)[n++] = c;
    }
    free(text);
    if (n == 0) {
        FAIL("no rows of %s in cases.tsv", prefix);
    }
    return n;
}

static void copy_file(const char *from, const char *dir, const char *name) {
    char to[1024];
    size_t bytes;
    char *data = test_read_file(from, &bytes);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    test_write_file(to, data, bytes);
    free(data);
}

static void copy_folder(const char *from, const char *dir, const char *except) {
    DIR *d = opendir(from);
    if (!d) {
        FAIL("no folder %s", from);
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", from, e->d_name);
        if (e->d_name[0] != '.' && strcmp(e->d_name, except) != 0) {
            copy_file(path, dir, e->d_name);
        }
    }
    closedir(d);
}

char *bad_case_folder(const bad_case *c) {
    static int serial;
    char name[32], path[256], parent[256];
    snprintf(name, sizeof name, "case-%d", serial++);
    char *dir = strdup(test_path(name));
    if (!dir || mkdir(dir, 0700) != 0) {
        FAIL("cannot make %s", name);
    }
    snprintf(path, sizeof path, "bad/%s", c->file);
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    bool is_index = strncmp(c->file, "index/", 6) == 0;
    copy_folder(test_data("bad/ok-model"), dir, is_index ? "model.safetensors" : "");
    if (is_index) {
        copy_folder(test_data(parent), dir, "");
    } else if (strncmp(c->file, "ok-model/", 9) != 0) {
        copy_file(test_data(path), dir,
                  strncmp(c->file, "config/", 7) == 0       ? "config.json"
                  : strncmp(c->file, "tokenizer/", 10) == 0 ? "tokenizer.json"
                                                            : "model.safetensors");
    }
    return dir;
}

void bad_case_check(const bad_case *c, int rc, const smoe_error *err) {
    if (c->verdict == BAD_ACCEPT && rc != SMOE_OK) {
        FAIL("%s must open: %s", c->file, err->text);
    }
    if (c->verdict == BAD_REFUSE && rc == SMOE_OK) {
        FAIL("%s must be refused", c->file);
    }
    if (rc != SMOE_OK && (!err->text[0] || err->code != rc)) {
        FAIL("%s: code %d, error %d \"%s\"", c->file, rc, err->code, err->text);
    }
}
