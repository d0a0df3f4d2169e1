/* smoe tokenize: text to ids and back. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"

static int print_ids(const smoe_tokenizer *t, const char *text, size_t bytes, bool special,
                     bool json, smoe_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    char *decoded = NULL;
    size_t decoded_bytes = 0;
    int rc = smoe_tokenize(t, text, bytes, special, &ids, &n, err);
    if (rc == SMOE_OK && json) {
        rc = smoe_detokenize(t, ids, n, true, &decoded, &decoded_bytes, err);
    }
    if (rc == SMOE_OK && json) {
        struct json_object *o = json_object_new_object();
        struct json_object *a = json_object_new_array();
        for (size_t i = 0; i < n; i++) {
            json_object_array_add(a, json_object_new_int(ids[i]));
        }
        json_object_object_add(o, "ids", a);
        json_object_object_add(o, "decoded",
                               json_object_new_string_len(decoded, (int)decoded_bytes));
        print_json(o);
    } else if (rc == SMOE_OK) {
        for (size_t i = 0; i < n; i++) {
            printf("%s%d", i ? " " : "", ids[i]);
        }
        putchar('\n');
    }
    smoe_free(ids);
    smoe_free(decoded);
    return rc;
}

/* One {"text": ...}; number names it in errors. */
static int print_row(const smoe_tokenizer *t, const char *line, size_t bytes, size_t number,
                     smoe_error *err) {
    struct json_object *row = NULL;
    const char *text = NULL;
    size_t text_bytes = 0;
    char label[32];
    snprintf(label, sizeof label, "line %zu", number);
    int rc = json_parse(&row, line, bytes, label, 0, err);
    if (rc == SMOE_OK && !json_object_is_type(row, json_type_object)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: must be an object", label);
    }
    rc = rc ? rc : json_need_text(&(json_at){row, label, ""}, "text", &text, &text_bytes, err);
    rc = rc ? rc : print_ids(t, text, text_bytes, true, true, err);
    json_object_put(row);
    return rc;
}

static int print_rows(const smoe_tokenizer *t, const char *data, size_t bytes, smoe_error *err) {
    const char *end = data + bytes;
    int rc = SMOE_OK;
    for (size_t number = 1; data < end && rc == SMOE_OK; number++) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        const char *stop = newline ? newline : end;
        if (stop > data) {
            rc = print_row(t, data, (size_t)(stop - data), number, err);
        }
        data = stop + 1;
    }
    return rc;
}

static int print_text(const smoe_tokenizer *t, const char *list, smoe_error *err) {
    int32_t *ids;
    size_t n;
    char *text;
    size_t bytes;
    int rc = parse_ids(list, strlen(list), "--ids", &ids, &n, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    for (size_t i = 0; i < n && rc == SMOE_OK; i++) {
        if ((size_t)ids[i] >= smoe_tokenizer_size(t)) {
            rc = err_set(err, SMOE_ERR_ARGUMENT,
                         "--ids: id %d is out of range: the tokenizer has %zu", ids[i],
                         smoe_tokenizer_size(t));
        }
    }
    rc = rc ? rc : smoe_detokenize(t, ids, n, true, &text, &bytes, err);
    if (rc == SMOE_OK) {
        fwrite(text, 1, bytes, stdout);
        putchar('\n');
        smoe_free(text);
    }
    free(ids);
    return rc;
}

/* What does not go together: one source of input, and one form of output. NULL: all is well. */
static const char *find_conflict(const char *text, const char *file, const char *ids, bool special,
                                 bool json, bool jsonl) {
    const struct {
        bool is_given;
        const char *why;
    } rows[] = {
        {text && file, "give --text or --file, not both"},
        {ids && (text || file), "--ids takes the place of --text and --file"},
        {ids && (json || jsonl), "--ids prints a text, so it goes with neither --json nor --jsonl"},
        {ids && special, "--special is for texts, --ids always prints control tokens"},
        {jsonl && text, "--jsonl reads its texts from --file or standard input"},
        {jsonl && (json || special), "--jsonl includes --json and --special"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].is_given) {
            return rows[i].why;
        }
    }
    return NULL;
}

static int run(const command *self, int argc, char **argv) {
    smoe_error err;
    smoe_tokenizer *t;
    const char *path = NULL;
    const char *text = NULL;
    const char *file = NULL;
    const char *ids = NULL;
    bool special = false;
    bool json = false;
    bool jsonl = false;
    const option own[] = {
        {OPTION_TEXT, 'p', "text", "TEXT", &text, 0, 0, "the text", NULL},
        {OPTION_TEXT, 'f', "file", "FILE", &file, 0, 0,
         "read the text from a file (default: standard input)", NULL},
        {OPTION_TEXT, 0, "ids", "LIST", &ids, 0, 0, "print the text of these ids instead", NULL},
        {OPTION_FLAG, 0, "special", NULL, &special, 0, 0, "read control tokens in the text as such",
         NULL},
        {OPTION_FLAG, 0, "json", NULL, &json, 0, 0, "print {\"ids\": …, \"decoded\": …}", NULL},
        {OPTION_FLAG, 0, "jsonl", NULL, &jsonl, 0, 0,
         "read lines of {\"text\": …} and print such a line for each", NULL},
        {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    const char *conflict = find_conflict(text, file, ids, special, json, jsonl);
    if (conflict) {
        return fail_text("tokenize: %s", conflict);
    }
    if (smoe_tokenizer_open(&t, path, &err) != SMOE_OK) {
        return fail(&err);
    }
    if (ids) {
        rc = print_text(t, ids, &err);
    } else if (text) {
        rc = print_ids(t, text, strlen(text), special, json, &err);
    } else {
        char *data = NULL;
        size_t bytes = 0;
        rc = read_input(file ? file : "-", &data, &bytes, &err);
        rc = rc      ? rc
             : jsonl ? print_rows(t, data, bytes, &err)
                     : print_ids(t, data, bytes, special, json, &err);
        free(data);
    }
    smoe_tokenizer_close(t);
    return rc == SMOE_OK ? 0 : fail(&err);
}

const command command_tokenize = {.name = "tokenize",
                                  .arguments = "MODEL",
                                  .summary = "print the token ids of a text",
                                  .details = "  MODEL may also be a folder with tokenizer files "
                                             "only. With --jsonl control tokens\n"
                                             "  in the texts are read as such, and decoded "
                                             "with them.",
                                  .n_argument = 1,
                                  .run = run};
