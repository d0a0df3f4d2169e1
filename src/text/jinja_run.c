/* jinja_render: limits and errors of a render, calls of built-in functions, and the result. */
#include "text/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors and limits */

static void locate(const jrun *r, size_t *line, size_t *column) {
    const char *s = r->t->source;
    size_t pos = r->pos > r->t->bytes ? r->t->bytes : r->pos;
    size_t start = 0;
    *line = 1;
    for (size_t i = 0; i < pos; i++) {
        if (s[i] == '\n') {
            (*line)++;
            start = i + 1;
        }
    }
    *column = 1 + jstr_count(s + start, pos - start);
}

/* The first error counts. */
static void fail(jrun *r, int code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void fail(jrun *r, int code, const char *format, va_list args) {
    char text[500];
    size_t line;
    size_t column;
    if (r->code == SMOE_OK) {
        vsnprintf(text, sizeof text, format, args);
        locate(r, &line, &column);
        r->code = code;
        err_set(r->err, code, "%s:%zu:%zu: %s", r->t->name, line, column, text);
    }
}

bool jfail(jrun *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(r, SMOE_ERR_ARGUMENT, format, args);
    va_end(args);
    return false;
}

bool jfail_limit(jrun *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(r, SMOE_ERR_MEMORY, format, args);
    va_end(args);
    return false;
}

bool jfail_memory(jrun *r) {
    return jfail_limit(r, "rendering needs more than %llu bytes of memory",
                       (unsigned long long)r->mem.max_bytes);
}

bool jfail_undefined(jrun *r, jval v) {
    const jundef *u = v.undef;
    const jstr *name;
    if (!u || u->hint) {
        return jfail(r, "%s", u ? u->hint : "an undefined value");
    }
    jbuf b = {0};
    jval text;
    if (!jbuf_value(r, &b, u->name, true) || !jbuf_take(r, &b, &text)) {
        return false;
    }
    name = text.s;
    int bytes = name->bytes > 100 ? 100 : (int)name->bytes;
    if (!u->owner) {
        return jfail(r, "%.*s is undefined", bytes, name->data);
    }
    return jfail(r, "'%s' has no %s %.*s", u->owner,
                 u->name.kind == J_STR ? "attribute" : "element", bytes, name->data);
}

bool jcharge(jrun *r, size_t n) {
    if (r->code != SMOE_OK) {
        return false;
    }
    r->steps += 1 + n;
    if (r->steps <= r->max_steps) {
        return true;
    }
    return jfail_limit(r, "rendering takes more than %llu steps", (unsigned long long)r->max_steps);
}

bool jenter(jrun *r) {
    if (++r->depth > JINJA_CALL_DEPTH) {
        return jfail_limit(r, "calls and values nested deeper than %d levels", JINJA_CALL_DEPTH);
    }
    return true;
}

void jleave(jrun *r) {
    r->depth--;
}

/* ---- calling built-in functions */

/* The place of a name in "a,b,c", or -1. */
static int parameter_index(const char *params, const jstr *name) {
    int i = 0;
    while (*params) {
        size_t n = strcspn(params, ",");
        if (n == name->bytes && memcmp(params, name->data, n) == 0) {
            return i;
        }
        params += n + (params[n] == ',');
        i++;
    }
    return -1;
}

static size_t count_parameters(const char *params) {
    size_t n = *params != '\0';
    for (; *params; params++) {
        n += *params == ',';
    }
    return n;
}

static bool bind_arguments(jrun *r, const jnative *f, const jargs *args, jcall *c) {
    bool by_name = f->params[0] != '/';
    const char *params = by_name ? f->params : f->params + 1;
    size_t n = count_parameters(params);
    if (args->n_pos > n) {
        return jfail(r, "%s takes at most %zu arguments, not %zu", f->name, n, args->n_pos);
    }
    for (size_t i = 0; i < args->n_pos; i++) {
        c->arg[i] = args->pos[i];
    }
    for (size_t i = 0; i < args->n_kw; i++) {
        int at = by_name ? parameter_index(params, args->names[i]) : -1;
        if (at < 0 || c->arg[at].kind != J_MISSING) {
            int bytes = args->names[i]->bytes > 60 ? 60 : (int)args->names[i]->bytes;
            return jfail(r, "%s cannot take the argument '%.*s'", f->name, bytes,
                         args->names[i]->data);
        }
        c->arg[at] = args->kw[i];
    }
    for (size_t i = 0; i < f->n_required; i++) {
        if (c->arg[i].kind == J_MISSING) {
            return jfail(r, "%s misses its argument %zu", f->name, i + 1);
        }
    }
    return true;
}

bool jcall_native(jrun *r, const jnative *f, jval self, const jargs *args, jval *out) {
    jcall c = {.self = self, .args = args, .native = f};
    for (int i = 0; i < JCALL_ARGS; i++) {
        c.arg[i] = jmissing();
    }
    c.out = jnone();
    if (!jcharge(r, 1) || (f->params && !bind_arguments(r, f, args, &c))) {
        return false;
    }
    bool ok = f->fn(r, &c) && r->code == SMOE_OK;
    *out = c.out;
    return ok;
}

bool jarg_int(jrun *r, const jcall *c, size_t i, int64_t or_else, int64_t *out) {
    jval v = c->arg[i];
    if (v.kind == J_MISSING) {
        *out = or_else;
        return true;
    }
    if (v.kind != J_INT && v.kind != J_BOOL) {
        return v.kind == J_UNDEFINED ? jfail_undefined(r, v)
                                     : jfail(r, "%s: argument %zu must be a whole number, not '%s'",
                                             c->native->name, i + 1, jtype_name(v));
    }
    *out = v.kind == J_BOOL ? v.b : v.i;
    return true;
}

bool jarg_str(jrun *r, const jcall *c, size_t i, const jstr **out) {
    if (c->arg[i].kind != J_STR) {
        return jfail(r, "%s: argument %zu must be a string, not '%s'", c->native->name, i + 1,
                     jtype_name(c->arg[i]));
    }
    *out = c->arg[i].s;
    return true;
}

bool jarg_truth(jrun *r, const jcall *c, size_t i, bool or_else) {
    return c->arg[i].kind == J_MISSING ? or_else : jtruth(r, c->arg[i]);
}

bool jcall_value(jrun *r, jval callee, const jargs *args, jval *out) {
    switch (callee.kind) {
    case J_MACRO:
        return jcall_macro(r, callee.macro, args, out);
    case J_METHOD:
        return jcall_native(r, callee.bound->method, callee.bound->self, args, out);
    case J_NATIVE:
        return jcall_native(r, callee.native, jnone(), args, out);
    case J_LOOP:
        return jcall_loop(r, callee.loop, args, out);
    case J_JOINER:
        if (args->n_pos || args->n_kw) {
            return jfail(r, "a joiner takes no arguments");
        }
        if (callee.joiner->is_used) {
            *out = callee.joiner->separator;
            return true;
        }
        callee.joiner->is_used = true;
        return jtext_of(r, "", out);
    case J_UNDEFINED:
        return jfail_undefined(r, callee);
    default:
        return jfail(r, "'%s' object is not callable", jtype_name(callee));
    }
}

/* ---- rendering */

static bool load_variables(jrun *r, const jinja_options *o) {
    for (size_t i = 0; i < o->n_var; i++) {
        jval v;
        const jinja_var *var = &o->vars[i];
        const jstr *name = jstr_of(&r->mem, var->name, strlen(var->name), false);
        if (!name) {
            return jfail_memory(r);
        }
        if (!jfrom_json(r, var->value, var->origin, 0, &v) ||
            !jdict_put(r, &r->vars, jtext(name), v)) {
            return false;
        }
    }
    return true;
}

static bool run_template(jrun *r, const jinja_options *o) {
    jact act = {0};
    jflow flow = FLOW_NEXT;
    if (!load_variables(r, o)) {
        return false;
    }
    act.slots = jget(r, (size_t)r->t->func.n_slot + 1, sizeof *act.slots);
    if (!act.slots) {
        return false;
    }
    r->act = &act;
    r->out = &r->main_out;
    jenter_scope(r, &r->t->scope);
    return jexec(r, &r->t->body, &flow) && r->code == SMOE_OK;
}

/* Marks to segments that cover the text. */
static size_t cut_segments(const jbuf *b, jinja_segment *out) {
    size_t n = 0;
    size_t at = 0;
    for (size_t i = 0; i < b->n_mark; i++) {
        if (b->marks[i].start > at) {
            out[n++] = (jinja_segment){at, b->marks[i].start, false};
        }
        out[n++] = (jinja_segment){b->marks[i].start, b->marks[i].end, true};
        at = b->marks[i].end;
    }
    if (at < b->bytes) {
        out[n++] = (jinja_segment){at, b->bytes, false};
    }
    return n;
}

static int copy_output(const jrun *r, jinja_output *out, smoe_error *err) {
    const jbuf *b = &r->main_out;
    jinja_output o = {.bytes = b->bytes};
    o.text = mem_copy_text(b->bytes ? b->data : "", b->bytes);
    o.segments = mem_array(2 * b->n_mark + 1, sizeof *o.segments);
    if (!o.text || !o.segments) {
        jinja_output_free(&o);
        return err_no_memory(err, b->bytes);
    }
    o.n_segment = cut_segments(b, o.segments);
    *out = o;
    return SMOE_OK;
}

int jinja_render(const jinja_template *t, const jinja_options *options, jinja_output *out,
                 smoe_error *err) {
    jrun r = {.t = t, .err = err, .now = options->now};
    r.max_steps = options->max_steps ? options->max_steps : JINJA_STEPS;
    r.mem.max_bytes = options->max_memory_bytes ? options->max_memory_bytes : JINJA_MEMORY_BYTES;
    r.max_output_bytes = options->max_output_bytes ? options->max_output_bytes : JINJA_OUTPUT_BYTES;
    int rc = run_template(&r, options) ? copy_output(&r, out, err) : r.code;
    arena_free(&r.mem.blocks);
    return rc;
}

void jinja_output_free(jinja_output *out) {
    free(out->text);
    free(out->segments);
    *out = (jinja_output){0};
}
