/* JSON into values, and values to JSON as Python's json.dumps writes it. Owns no state. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "text/jinja_run.h"

/* ---- from JSON */

bool jinja_is_role(const char *role, size_t bytes) {
    static const char *const roles[] = {
        "system", "developer",   "user",  "assistant", "tool",        "function",       "ipython",
        "model",  "observation", "tools", "context",   "environment", "latest_reminder"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strlen(roles[i]) == bytes && memcmp(roles[i], role, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static bool text_from_json(jrun *r, const char *text, size_t bytes, bool is_input, jval *out) {
    char *copy = jget(r, bytes ? bytes : 1, 1);
    const jstr *s = NULL;
    if (!copy || !jcharge(r, bytes / 64)) {
        return false;
    }
    if (bytes) {
        memcpy(copy, text, bytes);
    }
    s = jstr_of(&r->mem, copy, bytes, is_input);
    *out = jtext(s);
    return s || jfail_memory(r);
}

/* json-c holds a number beyond 64 bits at the nearest one it can; that would be another number. */
static bool int_from_json(jrun *r, struct json_object *o, jval *out) {
    int64_t i = json_object_get_int64(o);
    if (i == INT64_MIN || json_object_get_uint64(o) > INT64_MAX) {
        return jfail(r, "a whole number of the input is beyond 64 bits");
    }
    *out = jint(i);
    return true;
}

static bool object_from_json(jrun *r, struct json_object *o, jinja_origin origin, int depth,
                             jval *out) {
    bool is_input = origin != JINJA_TRUSTED;
    jdict *d = jget(r, 1, sizeof *d);
    if (!d) {
        return false;
    }
    json_object_object_foreach(o, key, value) {
        jval name = jnone();
        jval v = jnone();
        bool is_role =
            origin == JINJA_MESSAGES && depth == 1 && strcmp(key, "role") == 0 &&
            json_object_is_type(value, json_type_string) &&
            jinja_is_role(json_object_get_string(value), (size_t)json_object_get_string_len(value));
        if (!text_from_json(r, key, strlen(key), is_input, &name) ||
            !jfrom_json(r, value, is_role ? JINJA_TRUSTED : origin, depth + 1, &v) ||
            !jdict_put(r, d, name, v)) {
            return false;
        }
    }
    *out = (jval){.kind = J_DICT, .dict = d};
    return true;
}

static bool array_from_json(jrun *r, struct json_object *o, jinja_origin origin, int depth,
                            jval *out) {
    size_t n = json_object_array_length(o);
    jlist *list = jlist_new(r, n);
    for (size_t i = 0; list && i < n; i++) {
        if (!jfrom_json(r, json_object_array_get_idx(o, i), origin, depth + 1, &list->items[i])) {
            return false;
        }
        list->n++;
    }
    *out = jlist_value(list);
    return list != NULL;
}

bool jfrom_json(jrun *r, struct json_object *o, jinja_origin origin, int depth, jval *out) {
    bool ok = true;
    if (!jcharge(r, 1)) {
        return false;
    }
    if (depth > LIMIT_JSON_DEPTH) {
        return jfail_limit(r, "the input is nested deeper than %d levels", LIMIT_JSON_DEPTH);
    }
    switch (json_object_get_type(o)) {
    case json_type_null:
        *out = jnone();
        break;
    case json_type_boolean:
        *out = jbool(json_object_get_boolean(o));
        break;
    case json_type_double:
        *out = jfloat(json_object_get_double(o));
        break;
    case json_type_int:
        ok = int_from_json(r, o, out);
        break;
    case json_type_string:
        return text_from_json(r, json_object_get_string(o), (size_t)json_object_get_string_len(o),
                              origin != JINJA_TRUSTED, out);
    case json_type_array:
        ok = array_from_json(r, o, origin, depth, out);
        break;
    default:
        ok = object_from_json(r, o, origin, depth, out);
        break;
    }
    out->is_input = origin != JINJA_TRUSTED;
    return ok;
}

/* ---- to JSON */

static bool add_unicode(jrun *r, jbuf *b, uint32_t cp, bool is_input) {
    char text[16];
    int n;
    if (cp < 0x10000) {
        n = snprintf(text, sizeof text, "\\u%04x", cp);
    } else {
        cp -= 0x10000;
        n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (cp >> 10),
                     0xdc00 + (cp & 0x3ff));
    }
    return jbuf_add(r, b, text, (size_t)n, is_input);
}

static bool add_string(jrun *r, const jstr *s, const jjson_style *style, jbuf *b) {
    bool is_any = s->n_mark > 0;
    bool ok = jbuf_char(r, b, '"', is_any);
    size_t start = 0;
    size_t used;
    for (size_t i = 0; ok && i < s->bytes; i += used) {
        uint32_t cp = (uint8_t)s->data[i];
        used = 1;
        if (cp >= 0x20 && cp < 0x80 && cp != '"' && cp != '\\') {
            continue;
        }
        if (cp >= 0x80) {
            cp = jstr_at(s, i, &used);
            if (!style->ensure_ascii) {
                continue;
            }
        }
        static const char from[] = "\"\\\n\r\t\f\b";
        static const char *const to[] = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\f", "\\b"};
        const char *known = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        bool is_input = jstr_is_input(s, i, i + used);
        ok = jbuf_part(r, b, s, start, i);
        if (known) {
            ok = ok && jbuf_text(r, b, to[known - from], is_input);
        } else if (cp < 0x20 || style->ensure_ascii) {
            ok = ok &&
                 (cp == 0x7f ? jbuf_char(r, b, cp, is_input) : add_unicode(r, b, cp, is_input));
        }
        start = i + used;
    }
    return ok && jbuf_part(r, b, s, start, s->bytes) && jbuf_char(r, b, '"', is_any);
}

static bool add_float(jrun *r, double f, bool is_input, jbuf *b) {
    char text[40];
    if (!isfinite(f)) {
        return jbuf_text(r, b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity", is_input);
    }
    return jbuf_add(r, b, text, jfloat_repr(f, text), is_input);
}

static bool add_json(jrun *r, jval v, const jjson_style *style, int level, jbuf *b);

static bool new_line(jrun *r, const jjson_style *style, int level, bool is_input, jbuf *b) {
    if (!style->has_indent) {
        return true;
    }
    bool ok = jbuf_text(r, b, "\n", is_input);
    for (int i = 0; ok && i < level; i++) {
        ok = jbuf_str(r, b, style->indent);
    }
    return ok;
}

static bool add_separator(jrun *r, jbuf *b, const jstr *s, bool is_input) {
    return is_input ? jbuf_add(r, b, s->data, s->bytes, true) : jbuf_str(r, b, s);
}

static bool add_array(jrun *r, jval v, const jjson_style *style, int level, jbuf *b) {
    const jlist *list = v.list;
    bool in = v.is_input;
    bool ok = jbuf_text(r, b, "[", in);
    for (size_t i = 0; ok && i < list->n; i++) {
        ok = (i == 0 || add_separator(r, b, style->item_separator, in)) &&
             new_line(r, style, level + 1, in, b) &&
             add_json(r, list->items[i], style, level + 1, b);
    }
    return ok && (list->n == 0 || new_line(r, style, level, in, b)) && jbuf_text(r, b, "]", in);
}

/* Keys become strings: numbers and the like as JSON writes them. */
static bool add_key(jrun *r, jval key, const jjson_style *style, jbuf *b) {
    switch (key.kind) {
    case J_STR:
        return add_string(r, key.s, style, b);
    case J_NONE:
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        return jbuf_text(r, b, "\"", key.is_input) && add_json(r, key, style, 0, b) &&
               jbuf_text(r, b, "\"", key.is_input);
    default:
        return jfail(r, "keys must be str, int, float, bool or None, not %s", jtype_name(key));
    }
}

static bool sort_entries(jrun *r, const jdict *d, size_t *order) {
    jval *keys = jget(r, d->n + 1, sizeof *keys);
    for (size_t i = 0; keys && i < d->n; i++) {
        keys[i] = d->entries[i].key;
    }
    return keys && jsort(r, keys, d->n, false, order);
}

static bool add_object(jrun *r, jval v, const jjson_style *style, int level, jbuf *b) {
    const jdict *d = v.dict;
    bool in = v.is_input;
    size_t *order = jget(r, d->n + 1, sizeof *order);
    if (!order || (style->sort_keys && !sort_entries(r, d, order))) {
        return false;
    }
    bool ok = jbuf_text(r, b, "{", in);
    for (size_t i = 0; ok && i < d->n; i++) {
        const jentry *e = &d->entries[style->sort_keys ? order[i] : i];
        ok = (i == 0 || add_separator(r, b, style->item_separator, in)) &&
             new_line(r, style, level + 1, in, b) && add_key(r, e->key, style, b) &&
             add_separator(r, b, style->key_separator, in) &&
             add_json(r, e->value, style, level + 1, b);
    }
    return ok && (d->n == 0 || new_line(r, style, level, in, b)) && jbuf_text(r, b, "}", in);
}

static bool add_kind(jrun *r, jval v, const jjson_style *style, int level, jbuf *b) {
    switch (v.kind) {
    case J_NONE:
        return jbuf_text(r, b, "null", v.is_input);
    case J_BOOL:
        return jbuf_text(r, b, v.b ? "true" : "false", v.is_input);
    case J_INT:
        return jbuf_value(r, b, v, false);
    case J_FLOAT:
        return add_float(r, v.f, v.is_input, b);
    case J_STR:
        return add_string(r, v.s, style, b);
    case J_LIST:
    case J_TUPLE:
        return add_array(r, v, style, level, b);
    case J_DICT:
        return add_object(r, v, style, level, b);
    default:
        return jfail(r, "Object of type %s is not JSON serializable", jtype_name(v));
    }
}

static bool add_json(jrun *r, jval v, const jjson_style *style, int level, jbuf *b) {
    bool ok = jenter(r) && jcharge(r, 1) && add_kind(r, v, style, level, b);
    jleave(r);
    return ok;
}

bool jtojson(jrun *r, jval v, const jjson_style *style, jbuf *b) {
    return add_json(r, v, style, 0, b);
}
