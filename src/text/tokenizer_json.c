/* Reads a settings document as a whole, and tokenizer.json, which is one that has its tables in it.
 *
 * "truncation" and "padding" are passed over: both are choices of one call in the reference
 * library's users, not of the vocabulary.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "text/tokenizer_read.h"

/* fn for the object under key, if it is there. */
static int read_part(reader *r, const json_at *root, const char *key, read_fn fn) {
    struct json_object *object = NULL;
    char path[PATH_BYTES];
    int rc = json_opt_object(root, key, &object, r->err);
    if (rc != SMOE_OK || !object) {
        return rc;
    }
    snprintf(path, sizeof path, "%s.", key);
    return fn(r, &(json_at){object, root->label, path});
}

/* Pre-tokenizer and decoder must agree on what a token is. */
static int check_parts(const reader *r) {
    const decoder *d = &r->t->decoder;
    if (!d->is_read) {
        return read_unsupported(r, "a tokenizer without", "a decoder");
    }
    if (r->t->pretok.is_byte_level != d->is_byte_level) {
        return d->is_byte_level
                   ? read_unsupported(r, "decoder ByteLevel without the pre-tokenizer", "ByteLevel")
                   : read_unsupported(r, "pre-tokenizer ByteLevel without the decoder",
                                      "ByteLevel");
    }
    return SMOE_OK;
}

static int check_around(const reader *r) {
    const tokenizer_around *a = &r->t->around;
    for (size_t i = 0; i < a->n_before + a->n_after; i++) {
        int32_t id = i < a->n_before ? a->before[i] : a->after[i - a->n_before];
        if ((uint32_t)id >= r->t->vocab.n_id) {
            return err_set(r->err, SMOE_ERR_FORMAT,
                           "%s: post_processor: id %d is not in the vocabulary", r->label, id);
        }
    }
    return SMOE_OK;
}

static int read_root(reader *r, const json_at *root) {
    struct json_object *added = NULL;
    const char *version = "1.0";
    int rc = json_opt_text(root, "version", &version, NULL, r->err);
    if (rc == SMOE_OK && strcmp(version, "1.0") != 0) {
        return read_unsupported(r, "version", version);
    }
    rc = rc ? rc : json_opt_array(root, "added_tokens", &added, r->err);
    rc = rc ? rc : read_part(r, root, "normalizer", read_normalizer);
    rc = rc ? rc : read_part(r, root, "pre_tokenizer", read_pre_tokenizer);
    rc = rc ? rc : read_part(r, root, "post_processor", read_post_processor);
    rc = rc ? rc : read_part(r, root, "decoder", read_decoder);
    rc = rc ? rc : check_parts(r);
    rc = rc ? rc : read_model(r, root, added);
    r->max_added = -1;
    rc = rc ? rc : read_added(r, root, added);
    rc = rc ? rc : check_around(r);
    return rc ? rc : decoder_prepare(&r->t->decoder, &r->t->vocab, r->err);
}

static int read_document(smoe_tokenizer *t, struct json_object *root, const model_source *source,
                         const json_tables *tables, smoe_error *err) {
    reader r = {.t = t, .label = t->label, .err = err, .source = source, .tables = tables};
    if (!json_object_is_type(root, json_type_object)) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: must be an object", t->label);
    }
    json_at at = {root, t->label, ""};
    struct json_object *special = NULL;
    int rc = read_root(&r, &at);
    if (rc == SMOE_OK && source) { /* a field of our own */
        rc = json_opt_object(&at, "special", &special, err);
        t->special = rc == SMOE_OK && special ? json_object_get(special) : NULL;
    }
    return rc;
}

int tokenizer_read_settings(smoe_tokenizer *t, struct json_object *root, const model_source *source,
                            smoe_error *err) {
    return read_document(t, root, source, NULL, err);
}

/* The document, without its tables when these are plain. What is not JSON without them is not with
 * them either, but the place to name is another. */
static int parse(struct json_object **root, const text_blob *json, json_tables *tables,
                 bool *is_cut, const char *label, smoe_error *err) {
    text_blob rest = {0};
    smoe_error ignored;
    int rc = json_tables_cut(tables, json, &rest, is_cut, err);
    if (rc == SMOE_OK && *is_cut) {
        *is_cut = json_parse(root, rest.data, rest.bytes, label, 0, &ignored) == SMOE_OK;
        free(rest.data);
    }
    return rc || *is_cut ? rc : json_parse(root, json->data, json->bytes, label, 0, err);
}

int tokenizer_read_json(smoe_tokenizer *t, const text_blob *json, struct json_object **settings,
                        smoe_error *err) {
    json_tables tables = {0};
    bool is_cut = false;
    if (json->bytes > LIMIT_TOKENIZER_BYTES) {
        return err_set(err, SMOE_ERR_FORMAT, "%s: more than %u bytes", t->label,
                       LIMIT_TOKENIZER_BYTES);
    }
    int rc = parse(settings, json, &tables, &is_cut, t->label, err);
    rc = rc ? rc : read_document(t, *settings, NULL, is_cut ? &tables : NULL, err);
    json_tables_free(&tables);
    struct json_object *model = rc == SMOE_OK ? json_find(*settings, "model") : NULL;
    if (model) {
        json_object_object_del(model, "vocab");
        json_object_object_del(model, "merges");
    }
    return rc;
}
