/* Pieces to symbols and symbols to ids; see bpe_symbols.h. Allocates nothing. */
#include "text/bpe_symbols.h"

#include "base/utf8.h"

/* ---- the start */

typedef struct starter {
    const bpe_model *m;
    int32_t *out;
    size_t n;
    bool has_unknown; /* one waits for its neighbours */
} starter;

static void flush_unknown(starter *s) {
    if (s->has_unknown) {
        s->out[s->n++] = s->m->unk_id;
        s->has_unknown = false;
    }
}

static void add_symbol(starter *s, int32_t id) {
    flush_unknown(s);
    s->out[s->n++] = id;
}

static void add_unknown(starter *s) {
    if (s->m->unk_id < 0) {
        return;
    }
    if (!s->m->fuse_unk) {
        flush_unknown(s);
    }
    s->has_unknown = true;
}

/* A waiting unknown token stays behind these, as in the reference library. */
static bool add_fallback(starter *s, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (!s->m->has_fallback || s->m->fallback_id[(uint8_t)text[i]] < 0) {
            return false;
        }
    }
    for (size_t i = 0; i < bytes; i++) {
        s->out[s->n++] = s->m->fallback_id[(uint8_t)text[i]];
    }
    return true;
}

static void start_bytes(starter *s, const char *piece, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = s->m->byte_id[(uint8_t)piece[i]];
        if (id >= 0) {
            add_symbol(s, id);
        } else {
            add_unknown(s);
        }
    }
    flush_unknown(s);
}

static void start_chars(starter *s, const char *piece, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        uint32_t cp = 0;
        size_t used = utf8_decode((const uint8_t *)piece + i, bytes - i, &cp);
        int32_t id = cp_table_get(&s->m->char_id, cp);
        if (id >= 0) {
            add_symbol(s, id);
        } else if (!add_fallback(s, piece + i, used)) {
            add_unknown(s);
        }
        i += used;
    }
    flush_unknown(s);
}

static void start_sentencepiece(starter *s, uint32_t n_id, const char *piece, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        int32_t symbol = -1;
        uint32_t cp = 0;
        size_t used = trie_longest(&s->m->verbatim, piece + i, bytes - i, &symbol);
        if (used == 0) {
            used = utf8_decode((const uint8_t *)piece + i, bytes - i, &cp);
            symbol = cp_table_get(&s->m->char_id, cp);
        }
        s->out[s->n++] = symbol >= 0 ? symbol : (int32_t)(n_id + used - 1);
        i += used;
    }
}

size_t bpe_first_symbols(const bpe_model *m, const vocab *v, const char *piece, size_t bytes,
                         int32_t *out) {
    starter s = {.m = m, .out = out};
    switch (m->kind) {
    case BPE_BYTES:
        start_bytes(&s, piece, bytes);
        break;
    case BPE_CHARS:
        start_chars(&s, piece, bytes);
        break;
    case BPE_SENTENCEPIECE:
        start_sentencepiece(&s, v->n_id, piece, bytes);
        break;
    }
    return s.n;
}

/* ---- the end */

typedef struct finisher {
    const bpe_model *m;
    const vocab *v;
    const char *at; /* what the next symbol stands for */
    const uint32_t (*parts)[2];
    bool after_unknown;
    id_list *out;
} finisher;

static void end_unknown(finisher *f, uint32_t bytes) {
    bool falls_back = f->m->has_fallback;
    for (uint32_t i = 0; i < bytes && falls_back; i++) {
        f->out->ids[f->out->n++] = f->m->fallback_id[(uint8_t)f->at[i]];
    }
    if (!falls_back && !f->after_unknown) {
        f->out->ids[f->out->n++] = f->m->unk_id;
    }
    f->after_unknown = !falls_back;
    f->at += bytes;
}

/* An unused token falls apart into what it was made of; recursion is bounded by its length. */
static void end_symbol(finisher *f, uint32_t symbol) {
    if (symbol >= f->v->n_id) {
        const bpe_extra *extra = &f->m->extra[symbol - f->v->n_id];
        if (extra->token < 0) {
            end_unknown(f, extra->bytes);
            return;
        }
        f->out->ids[f->out->n++] = extra->token;
        f->at += extra->bytes;
    } else if (f->parts && f->v->tokens[symbol].type == TEXT_TOKEN_UNUSED && f->parts[symbol][0]) {
        end_symbol(f, f->parts[symbol][0] - 1);
        end_symbol(f, f->parts[symbol][1] - 1);
        return;
    } else {
        f->out->ids[f->out->n++] = (int32_t)symbol;
        f->at += f->v->tokens[symbol].bytes;
    }
    f->after_unknown = false;
}

void bpe_last_symbols(const bpe_model *m, const vocab *v, const char *piece,
                      const uint32_t (*parts)[2], const int32_t *symbols, size_t n, id_list *out) {
    finisher f = {.m = m, .v = v, .at = piece, .parts = parts, .out = out};
    for (size_t i = 0; i < n; i++) {
        end_symbol(&f, (uint32_t)symbols[i]);
    }
}
