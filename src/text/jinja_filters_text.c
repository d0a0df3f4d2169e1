/* Filters on texts. Owns no state. */
#include <string.h>

#include "text/jinja_run.h"
#include "text/unicode.h"

/* The value as a text, safe ones still safe. */
static bool self_text(jrun *r, const jcall *c, const jstr **out) {
    return jsoft_str(r, c->self, out);
}

static bool do_case(jrun *r, jcall *c) {
    const jstr *s;
    return self_text(r, c, &s) && jchange_case(r, s, c->native->tag, &c->out);
}

/* Words begin behind white space, dashes and opening brackets. */
static bool do_title(jrun *r, jcall *c) {
    const jstr *s;
    jbuf b = {0};
    bool is_start = true;
    size_t used;
    if (!self_text(r, c, &s)) {
        return false;
    }
    for (size_t i = 0; i < s->bytes; i += used) {
        uint32_t cp = jstr_at(s, i, &used);
        bool is_break = jchar_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
        jval part;
        if (!jstr_part(r, s, i, i + used, &part) ||
            !jchange_case(r, part.s, is_start ? CASE_UPPER : CASE_LOWER, &part) ||
            !jbuf_str(r, &b, part.s)) {
            return false;
        }
        is_start = is_break;
    }
    return jbuf_take(r, &b, &c->out);
}

static bool do_trim(jrun *r, jcall *c) {
    const jstr *s;
    const jstr *chars = NULL;
    bool has_chars = c->arg[0].kind != J_MISSING && c->arg[0].kind != J_NONE;
    return self_text(r, c, &s) && (!has_chars || jarg_str(r, c, 0, &chars)) &&
           jstrip(r, s, chars, true, true, &c->out);
}

static bool do_replace(jrun *r, jcall *c) {
    const jstr *s;
    const jstr *old;
    const jstr *with;
    int64_t max = -1;
    bool has_count = c->arg[2].kind != J_MISSING && c->arg[2].kind != J_NONE;
    return jstr_from(r, c->self, &s) && jstr_from(r, c->arg[0], &old) &&
           jstr_from(r, c->arg[1], &with) && (!has_count || jarg_int(r, c, 2, -1, &max)) &&
           jreplace(r, s, old, with, max, &c->out);
}

static bool do_string(jrun *r, jcall *c) {
    const jstr *s;
    bool ok = self_text(r, c, &s);
    c->out = ok ? jtext(s) : jnone();
    return ok;
}

static bool do_safe(jrun *r, jcall *c) {
    const jstr *s;
    jstr *safe = jget(r, 1, sizeof *safe);
    if (!safe || !self_text(r, c, &s)) {
        return false;
    }
    *safe = *s;
    safe->is_safe = true;
    safe->room = NULL;
    c->out = jtext(safe);
    return true;
}

static bool do_escape(jrun *r, jcall *c) {
    const jstr *s;
    bool is_forced = c->native->tag == 1;
    return (is_forced ? jstr_from(r, c->self, &s) : self_text(r, c, &s)) && jescape(r, s, &c->out);
}

static bool do_format(jrun *r, jcall *c) {
    const jstr *s;
    if (c->args->n_pos && c->args->n_kw) {
        return jfail(r, "can't handle positional and keyword arguments at the same time");
    }
    jlist *list = jlist_new(r, c->args->n_pos);
    jval args = {.kind = J_TUPLE, .list = list};
    if (!list || !self_text(r, c, &s)) {
        return false;
    }
    for (size_t i = 0; i < c->args->n_pos; i++) {
        list->items[list->n++] = c->args->pos[i];
    }
    if (c->args->n_kw) {
        jdict *d = jget(r, 1, sizeof *d);
        for (size_t i = 0; d && i < c->args->n_kw; i++) {
            if (!jdict_put(r, d, jtext(c->args->names[i]), c->args->kw[i])) {
                return false;
            }
        }
        if (!d) {
            return false;
        }
        args = (jval){.kind = J_DICT, .dict = d};
    }
    return jpercent(r, s, args, &c->out);
}

/* ---- layout */

static bool do_center(jrun *r, jcall *c) {
    const jstr *s;
    static const jstr name = {.data = "center", .bytes = 6, .n_char = 6};
    bool is_unsafe;
    int64_t width;
    if (!self_text(r, c, &s) || !jarg_int(r, c, 0, 80, &width)) {
        return false;
    }
    jval w = jint(width);
    jargs args = {.pos = &w, .n_pos = 1};
    return jcall_native(r, jmethod_find(jtext(s), &name, &is_unsafe), jtext(s), &args, &c->out);
}

static bool indent_text(jrun *r, const jcall *c, const jstr **out) {
    int64_t n;
    jbuf b = {0};
    jval text;
    if (c->arg[0].kind == J_STR) {
        *out = c->arg[0].s;
        return true;
    }
    if (!jarg_int(r, c, 0, 4, &n) || !jbuf_fill(r, &b, ' ', n > 0 ? (size_t)n : 0, false) ||
        !jbuf_take(r, &b, &text)) {
        return false;
    }
    *out = text.s;
    return true;
}

static bool do_indent(jrun *r, jcall *c) {
    const jstr *indent;
    jlist *lines = jlist_new(r, 0);
    jval text;
    if (c->self.kind != J_STR) {
        return c->self.kind == J_UNDEFINED ? jfail_undefined(r, c->self)
                                           : jfail(r, "indent works on strings");
    }
    bool is_first = jarg_truth(r, c, 1, false);
    bool is_blank = jarg_truth(r, c, 2, false);
    jbuf b = {.is_safe = c->self.s->is_safe};
    jbuf ended = {0}; /* so that the empty line behind a last newline counts */
    if (!lines || !indent_text(r, c, &indent) || !jbuf_str(r, &ended, c->self.s) ||
        !jbuf_text(r, &ended, "\n", false) || !jbuf_take(r, &ended, &text) ||
        !jsplit_lines(r, text.s, false, lines)) {
        return false;
    }
    for (size_t i = 0; i < lines->n; i++) {
        const jstr *line = lines->items[i].s;
        bool is_indented = i == 0 ? is_first : is_blank || line->bytes > 0;
        if ((i && !jbuf_text(r, &b, "\n", false)) || (is_indented && !jbuf_str(r, &b, indent)) ||
            !jbuf_str(r, &b, line)) {
            return false;
        }
    }
    return jbuf_take(r, &b, &c->out);
}

/* Cuts a string at length - the end's characters, at a space unless kill_words. */
static bool cut_words(jrun *r, const jstr *s, int64_t length, const jstr *end, bool kill_words,
                      jval *out) {
    static const jstr space = {.data = " ", .bytes = 1, .n_char = 1};
    size_t cut = jstr_offset(s, (size_t)length - end->n_char);
    size_t at = SIZE_MAX;
    jval part;
    if (!kill_words && !jstr_rfind(r, s, 0, cut, &space, &at)) {
        return false;
    }
    return jstr_part(r, s, 0, at == SIZE_MAX ? cut : at, &part) &&
           jbinary(r, OP_ADD, part, jtext(end), out);
}

static bool do_truncate(jrun *r, jcall *c) {
    static const jstr dots = {.data = "...", .bytes = 3, .n_char = 3};
    const jstr *end = &dots;
    int64_t length;
    int64_t leeway = 5;
    size_t n;
    if (!jarg_int(r, c, 0, 255, &length) ||
        (c->arg[2].kind != J_MISSING && !jarg_str(r, c, 2, &end)) ||
        (c->arg[3].kind != J_NONE && !jarg_int(r, c, 3, 5, &leeway)) || !jlength(r, c->self, &n)) {
        return false;
    }
    if (length < (int64_t)end->n_char || leeway < 0) {
        return jfail(r, "truncate: the length is shorter than the end, or the leeway negative");
    }
    if (leeway > INT64_MAX - length || (int64_t)n <= length + leeway) {
        c->out = c->self;
        return true;
    }
    return c->self.kind == J_STR
               ? cut_words(r, c->self.s, length, end, jarg_truth(r, c, 1, false), &c->out)
               : jfail(r, "truncate works on strings, not on '%s'", jtype_name(c->self));
}

/* ---- counting and quoting */

static bool is_word(uint32_t cp) {
    uint32_t k = ucd_class(cp) & UCD_CATEGORY_MASK; /* the letters come first */
    return cp == '_' || k <= UCD_LO || k == UCD_ND || k == UCD_NL || k == UCD_NO;
}

static bool do_wordcount(jrun *r, jcall *c) {
    const jstr *s;
    bool is_inside = false;
    int64_t n = 0;
    size_t used;
    if (!self_text(r, c, &s)) {
        return false;
    }
    for (size_t i = 0; i < s->bytes; i += used) {
        bool is_in = is_word(jstr_at(s, i, &used));
        n += is_in && !is_inside;
        is_inside = is_in;
    }
    c->out = jint(n);
    return jcharge(r, s->bytes / 4);
}

static bool add_quoted(jrun *r, jbuf *b, jval v, bool is_query) {
    static const char hex[] = "0123456789ABCDEF";
    const jstr *s;
    if (!jstr_from(r, v, &s)) {
        return false;
    }
    for (size_t i = 0; i < s->bytes; i++) {
        uint8_t byte = (uint8_t)s->data[i];
        bool is_input = jstr_is_input(s, i, i + 1);
        bool is_plain =
            byte < 0x80 && ((byte >= '0' && byte <= '9') ||
                            ((byte | 32) >= 'a' && (byte | 32) <= 'z') || strchr("_.-~", byte));
        char text[3] = {'%', hex[byte >> 4], hex[byte & 15]};
        bool ok;
        if (byte && (is_plain || (byte == '/' && !is_query))) {
            ok = jbuf_add(r, b, s->data + i, 1, is_input);
        } else if (byte == ' ' && is_query) {
            ok = jbuf_text(r, b, "+", is_input);
        } else {
            ok = jbuf_add(r, b, text, 3, is_input);
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

static bool do_urlencode(jrun *r, jcall *c) {
    jbuf b = {0};
    jlist *list;
    jval source = c->self;
    if (source.kind == J_STR || !jis_iterable(source)) {
        return add_quoted(r, &b, source, false) && jbuf_take(r, &b, &c->out);
    }
    jview view = {source.kind == J_DICT ? source.dict : NULL, source.is_input, JVIEW_ITEMS};
    if (source.kind == J_DICT) {
        source = (jval){.kind = J_VIEW, .view = &view};
    }
    if (!jlist_from(r, source, &list)) {
        return false;
    }
    for (size_t i = 0; i < list->n; i++) {
        jlist *pair;
        if (!jlist_from(r, list->items[i], &pair)) {
            return false;
        }
        if (pair->n != 2) {
            return jfail(r, "urlencode needs pairs");
        }
        if ((i && !jbuf_text(r, &b, "&", false)) || !add_quoted(r, &b, pair->items[0], true) ||
            !jbuf_text(r, &b, "=", false) || !add_quoted(r, &b, pair->items[1], true)) {
            return false;
        }
    }
    return jbuf_take(r, &b, &c->out);
}

const jnative jtext_filters[] = {{"lower", "/", 0, CASE_LOWER, do_case},
                                 {"upper", "/", 0, CASE_UPPER, do_case},
                                 {"capitalize", "/", 0, CASE_CAPITALIZE, do_case},
                                 {"title", "/", 0, 0, do_title},
                                 {"trim", "chars", 0, 0, do_trim},
                                 {"replace", "old,new,count", 2, 0, do_replace},
                                 {"string", "/", 0, 0, do_string},
                                 {"safe", "/", 0, 0, do_safe},
                                 {"escape", "/", 0, 0, do_escape},
                                 {"e", "/", 0, 0, do_escape},
                                 {"forceescape", "/", 0, 1, do_escape},
                                 {"format", NULL, 0, 0, do_format},
                                 {"center", "width", 0, 0, do_center},
                                 {"indent", "width,first,blank", 0, 0, do_indent},
                                 {"truncate", "length,killwords,end,leeway", 0, 0, do_truncate},
                                 {"wordcount", "/", 0, 0, do_wordcount},
                                 {"urlencode", "/", 0, 0, do_urlencode},
                                 {NULL, NULL, 0, 0, NULL}};
