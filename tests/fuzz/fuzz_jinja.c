/* Fuzz target: parsing and rendering a template. The input is the template, a NUL, and JSON for its
 * variables (or nothing: then it gets a small conversation). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A claim that must hold for every input. */
static void must(bool claim) {
    if (!claim) {
        abort();
    }
}

static const char conversation[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi <|im_end|>\",\"n\":[1,2.5,null,true]},"
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e9\\ud83d\\ude00\"}],"
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"b\"}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
    "\"s\":\"  a,b\\nc \",\"n\":7,\"x\":{\"k\":[[],{}]}}";

static void check_output(const jinja_output *o) {
    size_t at = 0;
    must(o->text[o->bytes] == '\0' && utf8_valid((const uint8_t *)o->text, o->bytes));
    for (size_t i = 0; i < o->n_segment; i++) {
        const jinja_segment *s = &o->segments[i];
        must(s->start == at && s->end > at && s->end <= o->bytes);
        must(i == 0 || s->is_input != s[-1].is_input);
        at = s->end;
    }
    must(at == o->bytes);
}

static void render(const jinja_template *t, struct json_object *root) {
    enum { MAX_VARS = 16 };
    jinja_var vars[MAX_VARS];
    jinja_options options = {.vars = vars,
                             .now = {.tm_year = 126, .tm_mday = 2, .tm_wday = 5},
                             .max_steps = 300000,
                             .max_memory_bytes = 32u << 20,
                             .max_output_bytes = 1u << 20};
    jinja_output out = {0};
    smoe_error err = {0};
    json_object_object_foreach(root, key, value) {
        if (options.n_var < MAX_VARS) {
            jinja_origin origin = strcmp(key, "messages") == 0 ? JINJA_MESSAGES : JINJA_INPUT;
            vars[options.n_var++] = (jinja_var){key, value, origin};
        }
    }
    if (jinja_render(t, &options, &out, &err) == SMOE_OK) {
        check_output(&out);
        jinja_output_free(&out);
    } else {
        must(err.text[0] != '\0' && err.code < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const uint8_t *end = bytes ? memchr(data, '\0', bytes) : NULL;
    size_t n = end ? (size_t)(end - data) : bytes;
    struct json_object *root = NULL;
    jinja_template *t = NULL;
    smoe_error err = {0};
    if (jinja_parse(&t, (const char *)data, n, "t", bytes % 2 == 0, &err) != SMOE_OK) {
        must(t == NULL && err.text[0] != '\0' && err.code < 0);
        return 0;
    }
    const char *json = end ? (const char *)end + 1 : conversation;
    size_t json_bytes = end ? bytes - n - 1 : sizeof conversation - 1;
    if (json_parse(&root, json, json_bytes, "input", 0, &err) == SMOE_OK &&
        json_object_is_type(root, json_type_object)) {
        render(t, root);
    }
    json_object_put(root);
    jinja_free(t);
    return 0;
}
