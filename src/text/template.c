/* The variables and settings of chat templates; see template.h. */
#include "text/template.h"

#include <string.h>
#include <time.h>

#include "base/json.h"

int template_parse(jinja_template **out, const char *source, size_t bytes, const char *name,
                   smoe_error *err) {
    return jinja_parse(out, source, bytes, name, true, err);
}

static int read_now(const char *now, struct tm *out, smoe_error *err) {
    time_t t = time(NULL);
    if (!now) {
        return localtime_r(&t, out) ? SMOE_OK
                                    : err_set(err, SMOE_ERR_IO, "the local time is not known");
    }
    *out = (struct tm){0};
    const char *end = strptime(now, "%Y-%m-%d %H:%M:%S", out);
    if (!end || *end) {
        return err_set(err, SMOE_ERR_ARGUMENT,
                       "the time \"%.40s\" is not of the form 2026-01-02 03:04:05", now);
    }
    return SMOE_OK;
}

static int check_request(const template_request *q, smoe_error *err) {
    if (!json_object_is_type(q->messages, json_type_array)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "messages must be an array");
    }
    if (q->tools && !json_object_is_type(q->tools, json_type_array)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "tools must be an array");
    }
    if (q->kwargs && !json_object_is_type(q->kwargs, json_type_object)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "the template's variables must be an object");
    }
    if (q->kwargs && json_object_object_get_ex(q->kwargs, "messages", NULL)) {
        return err_set(err, SMOE_ERR_ARGUMENT, "messages cannot be among the template's variables");
    }
    return SMOE_OK;
}

static size_t add_object(jinja_var *vars, size_t n, struct json_object *o, jinja_origin origin) {
    json_object_object_foreach(o, key, value) {
        vars[n++] = (jinja_var){key, value, origin};
    }
    return n;
}

int template_render(const jinja_template *t, const template_request *q, jinja_output *out,
                    smoe_error *err) {
    jinja_options options = {0};
    int rc = check_request(q, err);
    rc = rc ? rc : read_now(q->now, &options.now, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t n_special = q->special ? (size_t)json_object_object_length(q->special) : 0;
    size_t n_kwarg = q->kwargs ? (size_t)json_object_object_length(q->kwargs) : 0;
    jinja_var *vars = mem_array(n_special + n_kwarg + 4, sizeof *vars);
    struct json_object *generation = json_object_new_boolean(q->add_generation);
    size_t n = 0;
    if (!vars || !generation) {
        free(vars);
        json_object_put(generation);
        return err_no_memory(err, (n_special + n_kwarg) * sizeof *vars);
    }
    n = n_special ? add_object(vars, n, q->special, JINJA_TRUSTED) : n;
    vars[n++] = (jinja_var){"messages", q->messages, JINJA_MESSAGES};
    vars[n++] = (jinja_var){"tools", q->tools, JINJA_INPUT};
    vars[n++] = (jinja_var){"documents", NULL, JINJA_INPUT};
    vars[n++] = (jinja_var){"add_generation_prompt", generation, JINJA_TRUSTED};
    n = n_kwarg ? add_object(vars, n, q->kwargs, JINJA_INPUT) : n;
    options.vars = vars;
    options.n_var = n;
    rc = jinja_render(t, &options, out, err);
    json_object_put(generation);
    free(vars);
    return rc;
}

int template_trusted(const jinja_output *o, text_span **spans, size_t *n, smoe_error *err) {
    text_span *list = mem_array(o->n_segment, sizeof *list);
    size_t used = 0;
    if (!list) {
        return err_no_memory(err, o->n_segment * sizeof *list);
    }
    for (size_t i = 0; i < o->n_segment; i++) {
        if (!o->segments[i].is_input) {
            list[used++] = (text_span){o->segments[i].start, o->segments[i].end};
        }
    }
    *spans = list;
    *n = used;
    return SMOE_OK;
}

/* Older files write a token as an object with its content. */
static struct json_object *token_text(struct json_object *value) {
    if (json_object_is_type(value, json_type_object)) {
        value = json_find(value, "content");
    }
    return json_object_is_type(value, json_type_string) ? value : NULL;
}

int template_special_tokens(struct json_object **out, const text_blob *config, const char *label,
                            smoe_error *err) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    struct json_object *root = NULL;
    struct json_object *special = json_object_new_object();
    int rc = special ? SMOE_OK : err_no_memory(err, sizeof(void *));
    if (rc == SMOE_OK && config->data) {
        rc = json_parse(&root, config->data, config->bytes, label, 0, err);
    }
    if (rc == SMOE_OK && root && !json_object_is_type(root, json_type_object)) {
        rc = err_set(err, SMOE_ERR_FORMAT, "%s: must be an object", label);
    }
    for (size_t i = 0; rc == SMOE_OK && root && i < sizeof names / sizeof names[0]; i++) {
        struct json_object *text = token_text(json_find(root, names[i]));
        if (text && json_object_object_add(special, names[i], json_object_get(text)) != 0) {
            json_object_put(text);
            rc = err_no_memory(err, sizeof(void *));
        }
    }
    json_object_put(root);
    if (rc != SMOE_OK) {
        json_object_put(special);
        return rc;
    }
    *out = special;
    return SMOE_OK;
}
