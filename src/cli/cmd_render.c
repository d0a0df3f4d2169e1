/* smoe render: messages to the prompt that a chat template makes of them. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"

/* Rows are rendered at one fixed time unless told otherwise: their results can be compared. */
#define ROW_TIME "2026-01-02 03:04:05"

typedef struct render_flags {
    const char *template_path;
    const char *messages_path;
    const char *tools_path;
    const char *now;
    option_list set;
    bool no_generation;
    bool jsonl;
    bool json;
} render_flags;

/* ---- rows */

/* A member of a row as JSON text, NULL when absent; borrowed from the row. */
static const char *member_text(struct json_object *row, const char *key, size_t *bytes) {
    struct json_object *value = json_find(row, key);
    const char *text =
        value ? json_object_to_json_string_length(value, JSON_C_TO_STRING_PLAIN, bytes) : NULL;
    return text;
}

static int render_row(const char *source, size_t source_bytes, const char *name,
                      const render_flags *flags, struct json_object *row, char **text,
                      size_t *bytes, smoe_error *err) {
    static const char *const tokens[] = {"bos_token", "eos_token"};
    smoe_render_options o = {.now = flags->now ? flags->now : ROW_TIME};
    struct json_object *special = json_object_new_object();
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        struct json_object *value = json_find(row, tokens[i]);
        if (value) {
            json_object_object_add(special, tokens[i], json_object_get(value));
        }
    }
    o.messages = member_text(row, "messages", &o.messages_bytes);
    o.tools = member_text(row, "tools", &o.tools_bytes);
    o.variables = member_text(row, "kwargs", &o.variables_bytes);
    int rc = smoe_render_template(source, source_bytes, name, json_object_to_json_string(special),
                                  &o, text, bytes, err);
    json_object_put(special);
    return rc;
}

/* One line of input to one line of output. */
static void print_row(const char *source, size_t source_bytes, const char *name,
                      const render_flags *flags, const char *line, size_t line_bytes) {
    struct json_object *row = NULL;
    struct json_object *out = json_object_new_object();
    smoe_error err;
    char *text = NULL;
    size_t bytes = 0;
    int rc = json_parse(&row, line, line_bytes, "row", 0, &err);
    if (rc == SMOE_OK && !json_object_is_type(row, json_type_object)) {
        rc = SMOE_ERR_FORMAT;
        snprintf(err.text, sizeof err.text, "row: must be an object");
    }
    rc = rc ? rc : render_row(source, source_bytes, name, flags, row, &text, &bytes, &err);
    json_object_object_add(out, rc == SMOE_OK ? "prompt" : "error",
                           rc == SMOE_OK ? json_object_new_string_len(text, (int)bytes)
                                         : json_object_new_string(err.text));
    print_json(out);
    smoe_free(text);
    json_object_put(row);
}

static int render_rows(const render_flags *flags, smoe_error *err) {
    char *source = NULL;
    char *input = NULL;
    size_t source_bytes;
    size_t bytes;
    int rc = read_input(flags->template_path, &source, &source_bytes, err);
    rc = rc ? rc : read_input("-", &input, &bytes, err);
    for (size_t at = 0; rc == SMOE_OK && at < bytes;) {
        const char *end = memchr(input + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - input) - at : bytes - at;
        if (n) {
            print_row(source, source_bytes, flags->template_path, flags, input + at, n);
        }
        at += n + 1;
    }
    free(input);
    free(source);
    return rc;
}

/* ---- one prompt */

/* The variables of --set as a JSON object; a value that is no JSON is a text. */
static int read_variables(struct json_object **out, const option_list *set, smoe_error *err) {
    struct json_object *o = json_object_new_object();
    for (size_t i = 0; i < set->n_item; i++) {
        const char *equals = strchr(set->item[i], '=');
        struct json_object *value = NULL;
        if (!equals || equals == set->item[i]) {
            json_object_put(o);
            return err_set(err, SMOE_ERR_ARGUMENT, "--set %s: expected KEY=VALUE", set->item[i]);
        }
        char *key = strndup(set->item[i], (size_t)(equals - set->item[i]));
        if (json_parse(&value, equals + 1, strlen(equals + 1), "--set", 0, NULL) != SMOE_OK) {
            value = json_object_new_string(equals + 1);
        }
        if (key) {
            json_object_object_add(o, key, value);
        }
        free(key);
    }
    *out = o;
    return SMOE_OK;
}

static int read_optional(const char *path, char **text, size_t *bytes, smoe_error *err) {
    return path ? read_input(path, text, bytes, err) : SMOE_OK;
}

static void print_prompt(const char *text, size_t bytes, const int32_t *ids, size_t n_id,
                         bool json) {
    if (json) {
        struct json_object *o = json_object_new_object();
        struct json_object *list = json_object_new_array();
        for (size_t i = 0; i < n_id; i++) {
            json_object_array_add(list, json_object_new_int(ids[i]));
        }
        json_object_object_add(o, "prompt", json_object_new_string_len(text, (int)bytes));
        json_object_object_add(o, "ids", list);
        print_json(o);
        return;
    }
    fwrite(text, 1, bytes, stdout);
    putchar('\n');
    for (size_t i = 0; i < n_id; i++) {
        printf("%s%d", i ? " " : "", ids[i]);
    }
    if (n_id) {
        putchar('\n');
    }
}

static int render_options(const render_flags *flags, const char *model, smoe_render_options *o,
                          smoe_error *err) {
    smoe_tokenizer *t = NULL;
    char *source = NULL;
    char *text = NULL;
    size_t source_bytes = 0;
    size_t bytes = 0;
    int32_t *ids = NULL;
    size_t n_id = 0;
    int rc;
    if (model) {
        rc = smoe_tokenizer_open(&t, model, err);
        rc = rc ? rc : smoe_render(t, o, &text, &bytes, &ids, &n_id, err);
    } else {
        rc = read_input(flags->template_path, &source, &source_bytes, err);
        rc = rc ? rc
                : smoe_render_template(source, source_bytes, flags->template_path, NULL, o, &text,
                                       &bytes, err);
    }
    if (rc == SMOE_OK) {
        print_prompt(text, bytes, ids, n_id, flags->json);
    }
    smoe_free(text);
    smoe_free(ids);
    free(source);
    smoe_tokenizer_close(t);
    return rc;
}

static int render_one(const render_flags *flags, const char *model, smoe_error *err) {
    smoe_render_options o = {.add_generation = !flags->no_generation, .now = flags->now};
    struct json_object *variables = NULL;
    char *messages = NULL;
    char *tools = NULL;
    int rc = read_input(flags->messages_path, &messages, &o.messages_bytes, err);
    rc = rc ? rc : read_optional(flags->tools_path, &tools, &o.tools_bytes, err);
    rc = rc ? rc : read_variables(&variables, &flags->set, err);
    if (rc == SMOE_OK) {
        o.messages = messages;
        o.tools = tools;
        o.variables = json_object_to_json_string_length(variables, JSON_C_TO_STRING_PLAIN,
                                                        &o.variables_bytes);
        rc = render_options(flags, model, &o, err);
    }
    json_object_put(variables);
    free(messages);
    free(tools);
    return rc;
}

/* ---- the command */

/* With --template there is no MODEL. */
static bool has_template(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--template") == 0 || strncmp(argv[i], "--template=", 11) == 0) {
            return true;
        }
    }
    return false;
}

static int run(const command *self, int argc, char **argv) {
    smoe_error err;
    render_flags f = {0};
    const char *model = NULL;
    command used = *self;
    const option own[] = {
        {OPTION_TEXT, 'm', "messages", "FILE", &f.messages_path, 0, 0,
         "JSON array of messages (- reads standard input)", NULL},
        {OPTION_TEXT, 0, "tools", "FILE", &f.tools_path, 0, 0, "JSON array of tools", NULL},
        {OPTION_LIST, 0, "set", "KEY=VALUE", &f.set, 0, 0,
         "a variable of the template, JSON or text", NULL},
        {OPTION_FLAG, 0, "no-generation-prompt", NULL, &f.no_generation, 0, 0,
         "end behind the last message", NULL},
        {OPTION_TEXT, 0, "now", "TIME", &f.now, 0, 0,
         "\"2026-01-02 03:04:05\" for templates that print the date", NULL},
        {OPTION_FLAG, 0, "json", NULL, &f.json, 0, 0, "print {\"prompt\": …, \"ids\": […]}", NULL},
        {OPTION_TEXT, 0, "template", "FILE", &f.template_path, 0, 0,
         "a Jinja template in the place of a model's", NULL},
        {OPTION_FLAG, 0, "jsonl", NULL, &f.jsonl, 0, 0,
         "read rows {messages, kwargs, bos_token, eos_token}", NULL},
        {0}};
    const option *const tables[] = {own, NULL};
    used.n_argument = has_template(argc, argv) ? 0 : 1;
    int rc = options_parse(&used, tables, argc, argv, &model);
    if (rc) {
        return rc < 0;
    }
    if (f.jsonl ? !f.template_path || f.messages_path != NULL : f.messages_path == NULL) {
        return fail_text("render: give --messages FILE, or --template FILE with --jsonl");
    }
    if (f.jsonl && (f.tools_path || f.set.n_item || f.no_generation || f.json)) {
        return fail_text("render: with --jsonl each row says what it needs: --tools, --set, "
                         "--no-generation-prompt and --json do not go with it");
    }
    rc = f.jsonl ? render_rows(&f, &err) : render_one(&f, model, &err);
    return rc == SMOE_OK ? 0 : fail(&err);
}

const command command_render = {
    .name = "render",
    .arguments = "MODEL",
    .summary = "print the prompt that a chat template makes of messages, and its ids",
    .details =
        "  With --template FILE there is no MODEL, and no ids. With --jsonl each line of\n"
        "  standard input is a row, and each line of output {\"prompt\": …} or {\"error\": …};\n"
        "  rows are rendered at " ROW_TIME " unless --now says otherwise.",
    .n_argument = 1,
    .run = run};
