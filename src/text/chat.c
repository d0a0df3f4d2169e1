/* Conversations to prompts: the public render calls, on top of template.h and the tokenizer.
 *
 * The rendered text is encoded as one, so that pieces which cross from the template's words to the
 * content's come out as in the reference; only the template's ranges may become control tokens.
 */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "text/lossy.h"
#include "text/tokenizer_impl.h"

/* ---- requests */

static int parse_part(struct json_object **out, const char *text, size_t bytes, const char *label,
                      smoe_error *err) {
    if (!text) {
        return SMOE_OK;
    }
    if (bytes > LIMIT_PROMPT_BYTES) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%s: %zu bytes are more than %u", label, bytes,
                       LIMIT_PROMPT_BYTES);
    }
    return json_parse(out, text, bytes, label, 0, err);
}

static void free_request(template_request *q) {
    json_object_put(q->messages);
    json_object_put(q->tools);
    json_object_put(q->kwargs);
    *q = (template_request){0};
}

/* *q is the caller's (free_request), also after a failure. */
static int read_request(template_request *q, const smoe_render_options *o, smoe_error *err) {
    *q = (template_request){.add_generation = o->add_generation, .now = o->now};
    int rc = parse_part(&q->messages, o->messages, o->messages_bytes, "messages", err);
    rc = rc ? rc : parse_part(&q->tools, o->tools, o->tools_bytes, "tools", err);
    return rc ? rc : parse_part(&q->kwargs, o->variables, o->variables_bytes, "variables", err);
}

static int check_template(const smoe_tokenizer *t, smoe_error *err) {
    if (t->chat_error) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s", t->chat_error);
    }
    return t->chat
               ? SMOE_OK
               : err_set(err, SMOE_ERR_UNSUPPORTED, "%s: the model has no chat template", t->label);
}

/* ---- encoding */

/* A control token must be found in the text as it comes: after a normaliser the ranges that the
 * template owns would no longer be known. */
static int check_control(const smoe_tokenizer *t, const jinja_output *o, const text_span *trusted,
                         size_t n_trusted, smoe_error *err) {
    for (size_t i = 0; i < t->n_added; i++) {
        const added_token *a = &t->added[i];
        for (size_t k = 0; a->normalized && a->is_control && k < n_trusted; k++) {
            if (memmem(o->text + trusted[k].start, trusted[k].end - trusted[k].start, a->content,
                       a->bytes)) {
                return err_set(err, SMOE_ERR_UNSUPPORTED,
                               "%s: the chat template uses the token %.60s, which is looked for "
                               "after normalisation",
                               t->label, a->content);
            }
        }
    }
    return SMOE_OK;
}

static int encode_output(const smoe_tokenizer *t, const jinja_output *o, id_list *out,
                         smoe_error *err) {
    text_span *trusted = NULL;
    size_t n_trusted = 0;
    int rc = template_trusted(o, &trusted, &n_trusted, err);
    rc = rc ? rc : check_control(t, o, trusted, n_trusted, err);
    rc = rc ? rc : id_list_reserve(out, 1, err);
    rc = rc ? rc : tokenizer_encode_spans(t, o->text, o->bytes, trusted, n_trusted, out, err);
    free(trusted);
    return rc;
}

/* Renders q and hands over what is asked for. */
static int render_request(const smoe_tokenizer *t, template_request *q, char **text,
                          size_t *text_bytes, int32_t **ids, size_t *n_id, smoe_error *err) {
    jinja_output o = {0};
    id_list list = {0};
    q->special = t->special;
    int rc = template_render(t->chat, q, &o, err);
    rc = rc || !ids ? rc : encode_output(t, &o, &list, err);
    if (rc != SMOE_OK) {
        free(list.ids);
        jinja_output_free(&o);
        return rc;
    }
    if (ids) {
        *ids = list.ids;
        *n_id = list.n;
    }
    if (text) {
        *text = o.text;
        *text_bytes = o.bytes;
        o.text = NULL;
    }
    jinja_output_free(&o);
    return SMOE_OK;
}

/* ---- the public calls */

int smoe_render(const smoe_tokenizer *tokenizer, const smoe_render_options *options, char **text,
                size_t *text_bytes, int32_t **ids, size_t *n_id, smoe_error *err) {
    template_request q = {0};
    int rc = check_template(tokenizer, err);
    rc = rc ? rc : read_request(&q, options, err);
    rc = rc ? rc : render_request(tokenizer, &q, text, text_bytes, ids, n_id, err);
    free_request(&q);
    return rc;
}

int smoe_render_template(const char *source, size_t source_bytes, const char *name,
                         const char *special, const smoe_render_options *options, char **text,
                         size_t *text_bytes, smoe_error *err) {
    template_request q = {0};
    struct json_object *tokens = NULL;
    jinja_template *t = NULL;
    jinja_output o = {0};
    int rc = template_parse(&t, source, source_bytes, name, err);
    rc = rc ? rc : read_request(&q, options, err);
    rc = rc || !special ? rc
                        : json_parse(&tokens, special, strlen(special), "special tokens", 0, err);
    if (rc == SMOE_OK && tokens && !json_object_is_type(tokens, json_type_object)) {
        rc = err_set(err, SMOE_ERR_ARGUMENT, "special tokens: must be an object");
    }
    q.special = tokens;
    rc = rc ? rc : template_render(t, &q, &o, err);
    if (rc == SMOE_OK) {
        *text = o.text;
        *text_bytes = o.bytes;
        o.text = NULL;
    }
    jinja_output_free(&o);
    json_object_put(tokens);
    free_request(&q);
    jinja_free(t);
    return rc;
}

/* text as a JSON string, with malformed bytes replaced; *out is the caller's (json_object_put). */
static int clean_text(struct json_object **out, const char *text, smoe_error *err) {
    byte_buf b = {.max_bytes = LIMIT_PROMPT_BYTES};
    int rc = lossy_append(&b, text, strlen(text), err);
    if (rc == SMOE_OK) {
        *out = json_object_new_string_len(b.data ? b.data : "", (int)b.bytes);
        rc = *out ? SMOE_OK : err_no_memory(err, b.bytes);
    }
    buf_free(&b);
    return rc;
}

/* Hands *value over to o, which sets it to NULL; false when there is no memory for it. */
static bool put_member(struct json_object *o, const char *key, struct json_object **value) {
    if (json_object_object_add(o, key, *value) != 0) {
        return false;
    }
    *value = NULL;
    return true;
}

static int add_message(struct json_object *list, const smoe_message *m, smoe_error *err) {
    if (!m->role || !m->content) {
        return err_set(err, SMOE_ERR_ARGUMENT, "a message without a role or content");
    }
    struct json_object *o = json_object_new_object();
    struct json_object *role = NULL;
    struct json_object *content = NULL;
    int rc = o ? SMOE_OK : err_no_memory(err, sizeof *m);
    rc = rc ? rc : clean_text(&role, m->role, err);
    rc = rc ? rc : clean_text(&content, m->content, err);
    if (rc == SMOE_OK && (!put_member(o, "role", &role) || !put_member(o, "content", &content) ||
                          json_object_array_add(list, o) != 0)) {
        rc = err_no_memory(err, sizeof *m);
    }
    if (rc != SMOE_OK) {
        json_object_put(role);
        json_object_put(content);
        json_object_put(o);
    }
    return rc;
}

int smoe_chat_tokens(const smoe_tokenizer *tokenizer, const smoe_message *messages,
                     size_t n_message, bool add_generation, int32_t **ids, size_t *n_id,
                     smoe_error *err) {
    template_request q = {.add_generation = add_generation};
    int rc = check_template(tokenizer, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    q.messages = json_object_new_array();
    rc = q.messages ? SMOE_OK : err_no_memory(err, sizeof(void *));
    for (size_t i = 0; i < n_message && rc == SMOE_OK; i++) {
        rc = add_message(q.messages, &messages[i], err);
    }
    rc = rc ? rc : render_request(tokenizer, &q, NULL, NULL, ids, n_id, err);
    free_request(&q);
    return rc;
}
