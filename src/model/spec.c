/* Neutral specs, their consistency, and what this version can run; see spec.h. The JSON form is in
 * spec_json.c. Knows no family and no container. */
#include "model/spec.h"

#include <math.h>
#include <stdio.h>

int spec_init(spec *s, int32_t n_layer, arena *a, smoe_error *err) {
    *s = (spec){0};
    if (n_layer < 1 || n_layer > LIMIT_LAYERS) {
        return err_set(err, SMOE_ERR_FORMAT, "%d layers, out of range (1 to %d)", n_layer,
                       LIMIT_LAYERS);
    }
    s->layer = arena_get(a, (size_t)n_layer, sizeof *s->layer);
    if (!s->layer) {
        return err_no_memory(err, (uint64_t)n_layer * sizeof *s->layer);
    }
    s->n_layer = n_layer;
    for (int32_t i = 0; i < n_layer; i++) {
        s->layer[i].ffn.moe_index = -1;
    }
    for (int i = 0; i < SPEC_ROPES; i++) {
        s->rope[i] = (rope_spec){.scaling = ROPE_NONE,
                                 .theta = 1,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .beta_fast = 32,
                                 .beta_slow = 1,
                                 .truncate = true,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4};
    }
    s->router.scale = 1;
    s->embed_scale = 1;
    s->residual_scale = 1;
    s->logit_scale = 1;
    s->begin_id = -1;
    return SMOE_OK;
}

/* ---- consistency */

/* What is being checked, for messages. */
typedef struct check {
    const char *label;
    int32_t layer; /* -1: none */
    smoe_error *err;
} check;

static int bad(const check *c, const char *field, const char *why) {
    if (c->layer >= 0) {
        return err_set(c->err, SMOE_ERR_FORMAT, "%s: layer %d: %s %s", c->label, c->layer, field,
                       why);
    }
    return err_set(c->err, SMOE_ERR_FORMAT, "%s: %s %s", c->label, field, why);
}

static int check_int(const check *c, const char *field, int64_t v, int64_t min, int64_t max) {
    if (v >= min && v <= max) {
        return SMOE_OK;
    }
    char why[96];
    snprintf(why, sizeof why, "is %lld, out of range (%lld to %lld)", (long long)v, (long long)min,
             (long long)max);
    return bad(c, field, why);
}

static int check_positive(const check *c, const char *field, double v) {
    return isfinite(v) && v > 0 ? SMOE_OK : bad(c, field, "must be a finite number > 0");
}

static int check_not_negative(const check *c, const char *field, double v) {
    return isfinite(v) && v >= 0 ? SMOE_OK : bad(c, field, "must be a finite number >= 0");
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ != SMOE_OK) {                                                                  \
            return try_rc_;                                                                        \
        }                                                                                          \
    } while (0)

static int check_attn(const check *c, const spec *s, const attn_spec *a) {
    TRY(check_int(c, "kind", (int64_t)a->kind, ATTN_GQA, ATTN_SHORT_CONV));
    TRY(check_int(c, "n_head", a->n_head, 1, LIMIT_HEADS));
    TRY(check_int(c, "n_kv_head", a->n_kv_head, 1, LIMIT_HEADS));
    if (a->n_head % a->n_kv_head != 0) {
        return bad(c, "n_head", "is not a multiple of n_kv_head");
    }
    TRY(check_int(c, "head_dim", a->head_dim, 1, LIMIT_DIM));
    TRY(check_int(c, "v_head_dim", a->v_head_dim, 1, LIMIT_DIM));
    TRY(check_int(c, "n_head * head_dim", (int64_t)a->n_head * a->head_dim, 1, LIMIT_DIM));
    TRY(check_int(c, "n_head * v_head_dim", (int64_t)a->n_head * a->v_head_dim, 1, LIMIT_DIM));
    TRY(check_int(c, "qk_norm", (int64_t)a->qk_norm, QK_NORM_NONE, QK_NORM_WHOLE));
    TRY(check_int(c, "window_tok", a->window_tok, 0, LIMIT_CONTEXT_TOK));
    TRY(check_int(c, "rope", a->rope, 0, s->n_rope - 1));
    if (a->rope > 0 && s->rope[a->rope].has_divisors) {
        return bad(c, "rope", "has divisors, which only the first may have");
    }
    if (s->rope[a->rope].scaling != ROPE_NONE && s->rope[a->rope].dim > a->head_dim) {
        return bad(c, "rope.dim", "is larger than head_dim");
    }
    TRY(check_positive(c, "scale", a->scale));
    TRY(check_not_negative(c, "clip", a->clip));
    TRY(check_int(c, "attn.scaled", a->scaled, 0, 15));
    return check_not_negative(c, "softcap", a->softcap);
}

static int check_ffn(const check *c, const spec *s, const ffn_spec *f, int32_t moe_before) {
    bool moe = f->kind == FFN_MOE;
    TRY(check_int(c, "ffn kind", (int64_t)f->kind, FFN_DENSE, FFN_NONE));
    TRY(check_int(c, "moe_index", f->moe_index, moe ? moe_before : -1, moe ? moe_before : -1));
    TRY(check_int(c, "width", f->width, f->kind == FFN_NONE ? 0 : 1, LIMIT_DIM));
    TRY(check_int(c, "n_expert", f->n_expert, moe, moe ? LIMIT_EXPERTS : 0));
    TRY(check_int(c, "n_expert_used", f->n_expert_used, moe, f->n_expert));
    TRY(check_int(c, "shared_width", f->shared_width, 0, moe ? LIMIT_DIM : 0));
    if (f->shared_gate && f->shared_width == 0) {
        return bad(c, "shared_gate", "is set without a shared expert");
    }
    TRY(check_int(c, "ffn.scaled", f->scaled, 0, f->shared_width ? 63 : 7));
    TRY(check_int(c, "act", (int64_t)f->act, ACT_SILU, ACT_SWIGLU_CLAMP));
    TRY(check_not_negative(c, "clamp", f->clamp));
    if (moe && s->router.n_group > 1 && f->n_expert % s->router.n_group != 0) {
        return bad(c, "n_expert", "is not a multiple of n_group");
    }
    return SMOE_OK;
}

static int check_rope(const check *c, const rope_spec *r) {
    TRY(check_int(c, "rope.scaling", (int64_t)r->scaling, ROPE_PLAIN, ROPE_NONE));
    if (r->scaling == ROPE_NONE) {
        return SMOE_OK;
    }
    TRY(check_int(c, "rope.dim", r->dim, 2, LIMIT_DIM));
    if (r->dim % 2 != 0) {
        return bad(c, "rope.dim", "is odd");
    }
    TRY(check_positive(c, "rope.theta", r->theta));
    TRY(check_positive(c, "rope.factor", r->factor));
    TRY(check_positive(c, "rope.attention_factor", r->attention_factor));
    if (r->scaling == ROPE_YARN || r->scaling == ROPE_LLAMA3) {
        TRY(check_int(c, "rope.original_context_tok", r->original_context_tok, 1,
                      LIMIT_CONTEXT_TOK));
    }
    if (r->scaling == ROPE_YARN) {
        TRY(check_positive(c, "rope.beta_fast", r->beta_fast));
        TRY(check_positive(c, "rope.beta_slow", r->beta_slow));
        /* the correction range divides by log(theta) */
        if (r->theta <= 1) {
            return bad(c, "rope.theta", "must be > 1 for yarn");
        }
    }
    if (r->scaling == ROPE_LLAMA3) {
        TRY(check_positive(c, "rope.low_freq_factor", r->low_freq_factor));
        TRY(check_positive(c, "rope.high_freq_factor", r->high_freq_factor));
        if (r->high_freq_factor <= r->low_freq_factor) {
            return bad(c, "rope.high_freq_factor", "must be larger than low_freq_factor");
        }
    }
    return SMOE_OK;
}

static int check_whole(const check *c, const spec *s) {
    TRY(check_int(c, "n_layer", s->n_layer, 1, LIMIT_LAYERS));
    TRY(check_int(c, "d_model", s->d_model, 1, LIMIT_DIM));
    TRY(check_int(c, "vocab_size", s->vocab_size, 1, LIMIT_VOCAB));
    TRY(check_int(c, "context_tok", s->context_tok, 1, LIMIT_CONTEXT_TOK));
    TRY(check_int(c, "norm", (int64_t)s->norm, NORM_RMS, NORM_LAYER));
    TRY(check_positive(c, "norm_eps", s->norm_eps));
    TRY(check_positive(c, "embed_scale", s->embed_scale));
    TRY(check_positive(c, "residual_scale", s->residual_scale));
    TRY(check_positive(c, "logit_scale", s->logit_scale));
    TRY(check_not_negative(c, "logit_softcap", s->logit_softcap));
    TRY(check_int(c, "router.score", (int64_t)s->router.score, ROUTER_SOFTMAX,
                  ROUTER_SQRT_SOFTPLUS));
    TRY(check_positive(c, "router.scale", s->router.scale));
    TRY(check_int(c, "router.n_group", s->router.n_group, 0, LIMIT_EXPERTS));
    TRY(check_int(c, "router.n_group_used", s->router.n_group_used, s->router.n_group > 1,
                  s->router.n_group));
    TRY(check_int(c, "begin_id", s->begin_id, -1, s->vocab_size - 1));
    TRY(check_int(c, "n_end_id", s->n_end_id, 0, SPEC_END_IDS));
    for (int32_t i = 0; i < s->n_end_id; i++) {
        TRY(check_int(c, "end_id", s->end_id[i], 0, s->vocab_size - 1));
    }
    TRY(check_int(c, "n_rope", s->n_rope, 1, SPEC_ROPES));
    for (int32_t i = 0; i < s->n_rope; i++) {
        TRY(check_rope(c, &s->rope[i]));
    }
    return SMOE_OK;
}

int spec_check(const spec *s, const char *label, smoe_error *err) {
    check c = {label, -1, err};
    int32_t n_moe = 0;
    TRY(check_whole(&c, s));
    for (int32_t i = 0; i < s->n_layer; i++) {
        c.layer = i;
        TRY(check_attn(&c, s, &s->layer[i].attn));
        TRY(check_ffn(&c, s, &s->layer[i].ffn, n_moe));
        n_moe += s->layer[i].ffn.kind == FFN_MOE;
    }
    return SMOE_OK;
}

/* ---- what runs */

static const char *missing_in_attn(const attn_spec *a) {
    return a->kind != ATTN_GQA ? "attention other than grouped-query"
           : a->sinks          ? "attention sinks"
           : a->gated          ? "an attention output gate"
           : a->softcap > 0    ? "a soft cap on attention scores"
                               : NULL;
}

static const char *missing_in_ffn(const ffn_spec *f) {
    return f->kind == FFN_NONE  ? "layers without a feed-forward part"
           : f->bias            ? "biases in experts"
           : f->act != ACT_SILU ? "an activation other than silu"
           : f->clamp > 0       ? "clamped activations"
                                : NULL;
}

static const char *missing_in_whole(const spec *s) {
    const router_spec *r = &s->router;
    bool softmax = r->score == ROUTER_SOFTMAX || r->score == ROUTER_SOFTMAX_SELECTED;
    return s->norm != NORM_RMS       ? "norms other than RMS"
           : !softmax                ? "router scores other than softmax"
           : r->bias                 ? "a router bias"
           : r->correction           ? "a router correction bias"
           : r->n_group > 1          ? "expert groups"
           : s->embed_scale != 1     ? "an embedding multiplier"
           : s->residual_scale != 1  ? "a residual multiplier"
           : s->logit_scale != 1     ? "a logit multiplier"
           : s->logit_softcap > 0    ? "a soft cap on logits"
           : spec_moe_layers(s) == 0 ? "models without any mixture-of-experts layer"
                                     : NULL;
}

int spec_check_runnable(const spec *s, smoe_error *err) {
    const char *what = missing_in_whole(s);
    for (int32_t i = 0; !what && i < s->n_layer; i++) {
        what = missing_in_attn(&s->layer[i].attn);
        what = what ? what : missing_in_ffn(&s->layer[i].ffn);
    }
    if (!what) {
        return SMOE_OK;
    }
    return err_set(err, SMOE_ERR_UNSUPPORTED,
                   "this %s model needs %s, which this version cannot run", s->family, what);
}

/* ---- sums */

int32_t spec_moe_layers(const spec *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_layer; i++) {
        n += s->layer[i].ffn.kind == FFN_MOE;
    }
    return n;
}

int32_t spec_moe_layer(const spec *s, int32_t moe_index) {
    for (int32_t i = 0; i < s->n_layer; i++) {
        if (s->layer[i].ffn.moe_index == moe_index) {
            return i;
        }
    }
    return -1;
}

int32_t spec_max_experts(const spec *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_layer; i++) {
        n = s->layer[i].ffn.n_expert > n ? s->layer[i].ffn.n_expert : n;
    }
    return n;
}

static uint64_t units_of(int32_t dim, uint32_t n_value) {
    return ((uint64_t)dim + n_value - 1) / n_value;
}

uint64_t spec_kv_token_bytes(const spec *s, uint32_t n_value, uint32_t unit_bytes) {
    uint64_t n = 0;
    for (int32_t i = 0; i < s->n_layer; i++) {
        const attn_spec *a = &s->layer[i].attn;
        n += (uint64_t)a->n_kv_head *
             (units_of(a->head_dim, n_value) + units_of(a->v_head_dim, n_value));
    }
    return n * unit_bytes;
}
