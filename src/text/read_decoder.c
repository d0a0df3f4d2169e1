/* Reads post_processor and decoder of a settings document; see tokenizer_read.h. */
#include <string.h>

#include "base/limits.h"
#include "text/tokenizer_read.h"

/* ---- post_processor */

static int add_around(reader *r, int32_t *list, size_t *n, int64_t id) {
    if (*n == TOKENIZER_AROUND) {
        return read_unsupported(r, "a template with more tokens around a text than", "4");
    }
    list[(*n)++] = (int32_t)id;
    return SMOE_OK;
}

/* The ids of a special token of the template. */
static int add_special(reader *r, const json_at *at, const char *name, bool is_before) {
    tokenizer_around *around = &r->t->around;
    struct json_object *tokens = NULL;
    struct json_object *ids = NULL;
    char path[PATH_BYTES] = "special_tokens";
    int rc = json_need_object(at, "special_tokens", &tokens, r->err);
    struct json_object *token = rc == SMOE_OK ? json_find(tokens, name) : NULL;
    if (rc == SMOE_OK && !json_object_is_type(token, json_type_object)) {
        return err_set(r->err, SMOE_ERR_FORMAT, "%s: %sspecial_tokens has no %.60s", r->label,
                       at->parent, name);
    }
    rc = rc ? rc : json_opt_array(&(json_at){token, at->label, path}, "ids", &ids, r->err);
    for (size_t i = 0; ids && i < json_object_array_length(ids) && rc == SMOE_OK; i++) {
        int64_t id = 0;
        rc = json_value_int(json_object_array_get_idx(ids, i), r->label, "special_tokens: id", 0,
                            LIMIT_VOCAB - 1, &id, r->err);
        rc = rc ? rc
                : add_around(r, is_before ? around->before : around->after,
                             is_before ? &around->n_before : &around->n_after, id);
    }
    return rc;
}

/* What a template puts around a single text. */
static int read_template(reader *r, const json_at *at) {
    struct json_object *list = NULL;
    bool is_before = true;
    if (r->t->around.n_before + r->t->around.n_after > 0) {
        return read_unsupported(r, "a second post-processor", "TemplateProcessing");
    }
    int rc = json_opt_array(at, "single", &list, r->err);
    for (size_t i = 0; list && i < json_object_array_length(list) && rc == SMOE_OK; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        bool is_object = json_object_is_type(item, json_type_object);
        struct json_object *token = is_object ? json_find(item, "SpecialToken") : NULL;
        if (is_object && json_find(item, "Sequence")) {
            is_before = false;
        } else if (json_object_is_type(token, json_type_object)) {
            const char *name = NULL;
            rc =
                json_need_text(&(json_at){token, at->label, at->parent}, "id", &name, NULL, r->err);
            rc = rc ? rc : add_special(r, at, name, is_before);
        } else {
            rc = err_set(r->err, SMOE_ERR_FORMAT, "%s: %ssingle[%zu] is malformed", r->label,
                         at->parent, i);
        }
    }
    return rc;
}

int read_post_processor(reader *r, const json_at *at) {
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK || strcmp(type, "ByteLevel") == 0) {
        return rc;
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return read_template(r, at);
    }
    return strcmp(type, "Sequence") == 0 ? read_each(r, at, "processors", read_post_processor)
                                         : read_unsupported(r, "post-processor", type);
}

/* ---- decoder */

/* NULL: SMOE_ERR_UNSUPPORTED, there are too many. */
static decode_step *new_step(reader *r, enum decode_kind kind) {
    decoder *d = &r->t->decoder;
    if (d->n_step == DECODER_STEPS) {
        read_unsupported(r, "a decoder of more steps than", "8");
        return NULL;
    }
    decode_step *step = &d->steps[d->n_step++];
    step->kind = kind;
    return step;
}

static int read_replace(reader *r, const json_at *at) {
    decode_step *step = new_step(r, DECODE_REPLACE);
    const char *from = NULL;
    const char *to = NULL;
    bool is_regex = false;
    size_t from_bytes = 0;
    if (!step) {
        return SMOE_ERR_UNSUPPORTED;
    }
    int rc = read_pattern(r, at, &from, &from_bytes, &is_regex);
    rc = rc ? rc : json_need_text(at, "content", &to, &step->to_bytes, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    step->to = arena_text(&r->t->text, to, step->to_bytes);
    step->from = arena_text(&r->t->text, from, from_bytes);
    step->from_bytes = from_bytes;
    if (!step->to || !step->from) {
        return err_no_memory(r->err, step->to_bytes);
    }
    return is_regex ? read_compile(r, at, from, from_bytes, &step->pattern) : SMOE_OK;
}

static int read_strip(reader *r, const json_at *at) {
    decoder *d = &r->t->decoder;
    const char *content = NULL;
    size_t bytes = 0;
    int64_t start = 0;
    int64_t stop = 0;
    int rc = read_char(r, at, "content", &content, &bytes);
    rc = rc ? rc : json_need_int(at, "start", 0, UINT32_MAX, &start, r->err);
    rc = rc ? rc : json_need_int(at, "stop", 0, UINT32_MAX, &stop, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (!d->is_fused) {
        decode_step *step = new_step(r, DECODE_STRIP);
        if (!step) {
            return SMOE_ERR_UNSUPPORTED;
        }
        step->from = content;
        step->from_bytes = bytes;
        step->n_start = (uint32_t)start;
        step->n_stop = (uint32_t)stop;
        return SMOE_OK;
    }
    if (stop > 0 || d->strip) {
        return read_unsupported(r, "decoder",
                                stop > 0 ? "Strip of the end of a text" : "Strip behind Strip");
    }
    d->strip = content;
    d->strip_bytes = (uint32_t)bytes;
    d->n_strip = (uint32_t)start;
    return SMOE_OK;
}

static int read_metaspace_decoder(reader *r, const json_at *at) {
    decode_step *step = new_step(r, DECODE_METASPACE);
    pretok_step options = {0};
    if (!step) {
        return SMOE_ERR_UNSUPPORTED;
    }
    int rc = read_metaspace(r, at, &options);
    if (rc == SMOE_OK) {
        step->from = options.literal;
        step->from_bytes = options.literal_bytes;
        step->drops_at_start = options.prepend != PRETOK_PREPEND_NEVER;
    }
    return rc;
}

/* A type of our own: what SentencePiece does to pieces. */
static int read_sentencepiece_decoder(reader *r, const json_at *at) {
    decoder *d = &r->t->decoder;
    decode_step *step = new_step(r, DECODE_METASPACE);
    if (!step) {
        return SMOE_ERR_UNSUPPORTED;
    }
    int rc = read_need_bool(at, "drops_at_start", &step->drops_at_start, r->err);
    rc = rc ? rc : read_need_bool(at, "drops_each", &d->drops_each, r->err);
    if (rc == SMOE_OK) {
        step->from = "\xe2\x96\x81";
        step->from_bytes = 3;
        step->drops_one = true;
        d->starts_late = true;
    }
    return rc;
}

/* Steps in an order that cannot be applied to each token alone. */
static int check_order(reader *r, const char *type) {
    const decoder *d = &r->t->decoder;
    bool is_strip = strcmp(type, "Strip") == 0;
    if (d->is_byte_level) {
        return read_unsupported(r, "a decoder behind ByteLevel:", type);
    }
    if (d->is_fused && !is_strip) {
        return read_unsupported(r, "a decoder behind Fuse:", type);
    }
    if (d->has_fallback && !d->is_fused && strcmp(type, "Fuse") != 0) {
        return read_unsupported(r, "a decoder behind ByteFallback:", type);
    }
    if (strcmp(type, "ByteLevel") == 0 && d->n_step) {
        return read_unsupported(r, "a decoder before", type);
    }
    return SMOE_OK;
}

int read_decoder(reader *r, const json_at *at) {
    decoder *d = &r->t->decoder;
    const char *type = NULL;
    int rc = json_need_text(at, "type", &type, NULL, r->err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (strcmp(type, "Sequence") == 0) {
        return read_each(r, at, "decoders", read_decoder);
    }
    rc = check_order(r, type);
    if (rc != SMOE_OK) {
        return rc;
    }
    d->is_read = true;
    if (strcmp(type, "Replace") == 0) {
        return read_replace(r, at);
    }
    if (strcmp(type, "Strip") == 0) {
        return read_strip(r, at);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace_decoder(r, at);
    }
    if (r->source && strcmp(type, "SentencePiece") == 0) {
        return read_sentencepiece_decoder(r, at);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        d->is_byte_level = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        d->has_fallback = true;
        /* a field of our own: SentencePiece is gentler with malformed bytes */
        return r->source ? json_opt_bool(at, "keeps_valid", &d->keeps_valid, r->err) : SMOE_OK;
    } else if (strcmp(type, "Fuse") == 0) {
        d->is_fused = true;
    } else {
        return read_unsupported(r, "decoder", type);
    }
    return SMOE_OK;
}
