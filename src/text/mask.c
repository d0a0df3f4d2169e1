/* Constraints and the texts that follow them; see mask.h. */
#include "text/mask.h"

#include <string.h>

#include "text/mask_impl.h"
#include "text/schema.h"
#include "text/tokenizer.h"

/* ---- opening */

static int copy_tokens(mask_tokens *out, const smoe_tokenizer *tokenizer, smoe_error *err) {
    size_t n_id = smoe_tokenizer_size(tokenizer);
    size_t total = 0;
    for (size_t id = 0; id < n_id; id++) {
        size_t n;
        tokenizer_token_bytes(tokenizer, (int32_t)id, &n);
        total += n <= MASK_TOKEN_BYTES ? n : 0;
    }
    out->n_id = (uint32_t)n_id;
    out->at = mem_array(n_id + 1, sizeof *out->at);
    out->bytes = total < UINT32_MAX ? mem_array(total + 1, 1) : NULL;
    if (!out->at || !out->bytes) {
        return err_no_memory(err, total + 4 * n_id);
    }
    total = 0;
    for (size_t id = 0; id < n_id; id++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(tokenizer, (int32_t)id, &n);
        out->at[id] = (uint32_t)total;
        if (bytes && n <= MASK_TOKEN_BYTES) {
            memcpy(out->bytes + total, bytes, n);
            total += n;
        }
    }
    out->at[n_id] = (uint32_t)total;
    return SMOE_OK;
}

int constraint_build(smoe_constraint **out, grammar_program *program,
                     const smoe_tokenizer *tokenizer, smoe_error *err) {
    smoe_constraint *c = mem_array(1, sizeof *c);
    if (!c) {
        grammar_program_free(program);
        return err_no_memory(err, sizeof *c);
    }
    c->program = *program;
    *program = (grammar_program){0};
    pthread_mutex_init(&c->lock, NULL);
    c->n_word = mask_words(smoe_tokenizer_size(tokenizer));
    int rc = copy_tokens(&c->tokens, tokenizer, err);
    rc = rc ? rc : mask_split_tokens(c, err);
    rc = rc ? rc : mask_find_runs(c, err);
    rc = rc ? rc : mask_cache_init(c, err);
    if (rc != SMOE_OK) {
        smoe_constraint_close(c);
        return rc;
    }
    *out = c;
    return SMOE_OK;
}

void smoe_constraint_close(smoe_constraint *c) {
    if (!c) {
        return;
    }
    mask_cache_free(c);
    mask_trie_free(&c->full);
    mask_trie_free(&c->rest);
    mask_trie_free(&c->rest_long);
    grammar_program_free(&c->program);
    free(c->tokens.at);
    free(c->tokens.bytes);
    free(c->core);
    free(c->run);
    free(c->same);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

uint64_t smoe_constraint_bytes(const smoe_constraint *c) {
    return sizeof *c + grammar_program_bytes(&c->program) +
           c->program.n_state * (1 + sizeof *c->same) + c->tokens.at[c->tokens.n_id] +
           ((uint64_t)c->tokens.n_id + 1) * sizeof *c->tokens.at + mask_trie_bytes(&c->full) +
           mask_trie_bytes(&c->rest) + mask_trie_bytes(&c->rest_long) +
           (MASK_CORE_CHARS + 1) * c->n_word * sizeof *c->core + mask_cache_bytes(c);
}

typedef int read_fn(grammar *g, const char *text, size_t bytes, uint32_t *root);

static int open_constraint(smoe_constraint **out, const smoe_tokenizer *tokenizer, const char *text,
                           size_t bytes, read_fn *read, const char *what, smoe_error *err) {
    grammar g;
    grammar_program program;
    uint32_t root = 0;
    grammar_init(&g, err);
    int rc = read(&g, text, bytes, &root);
    rc = rc ? rc : grammar_compile(&program, &g, root, what, err);
    grammar_free(&g);
    return rc ? rc : constraint_build(out, &program, tokenizer, err);
}

int smoe_constraint_open_gbnf(smoe_constraint **out, const smoe_tokenizer *tokenizer,
                              const char *text, size_t text_bytes, smoe_error *err) {
    return open_constraint(out, tokenizer, text, text_bytes, gbnf_read, "grammar", err);
}

int smoe_constraint_open_schema(smoe_constraint **out, const smoe_tokenizer *tokenizer,
                                const char *text, size_t text_bytes, smoe_error *err) {
    return open_constraint(out, tokenizer, text, text_bytes, schema_read, "schema", err);
}

/* ---- a text in the making */

struct constraint_run {
    /* what a shared constraint keeps behind its lock changes no answer */
    smoe_constraint *constraint;
    grammar_walker walker;
    grammar_config *config;   /* [MASK_WIDTH] */
    grammar_config *spare[2]; /* [MASK_WIDTH] */
    uint32_t n;
    bool accepts;
    uint32_t full_node, full_link; /* of the walker: time to drop what is not needed */
};

int constraint_start(constraint_run **out, const smoe_constraint *c, smoe_error *err) {
    constraint_run *r = mem_array(1, sizeof *r);
    if (!r) {
        return err_no_memory(err, sizeof *r);
    }
    memcpy(&r->constraint, &c, sizeof c);
    r->full_node = WALK_NODES / 2;
    r->full_link = WALK_LINKS / 2;
    r->config = mem_array(MASK_WIDTH, sizeof *r->config);
    r->spare[0] = mem_array(MASK_WIDTH, sizeof *r->config);
    r->spare[1] = mem_array(MASK_WIDTH, sizeof *r->config);
    int rc = r->config && r->spare[0] && r->spare[1]
                 ? walker_open(&r->walker, &c->program, err)
                 : err_no_memory(err, 3 * MASK_WIDTH * sizeof *r->config);
    if (rc == SMOE_OK) {
        r->n = walker_enter(&r->walker, c->program.root, WALK_END, r->config, MASK_WIDTH);
        r->accepts = r->walker.accepts;
        if (r->walker.is_exceeded) {
            rc = err_set(err, SMOE_ERR_UNSUPPORTED,
                         "constraint: the grammar is too ambiguous at its start");
        }
    }
    if (rc != SMOE_OK) {
        constraint_stop(r);
        return rc;
    }
    *out = r;
    return SMOE_OK;
}

void constraint_stop(constraint_run *r) {
    if (r) {
        walker_close(&r->walker);
        free(r->config);
        free(r->spare[0]);
        free(r->spare[1]);
        free(r);
    }
}

int constraint_mask(constraint_run *r, uint64_t *mask, size_t n_id, bool *has_any,
                    smoe_error *err) {
    pthread_mutex_lock(&r->constraint->lock);
    int rc = mask_collect(r->constraint, &r->walker, r->config, r->n, mask, n_id, err);
    pthread_mutex_unlock(&r->constraint->lock);
    *has_any = false;
    for (size_t i = 0; i < mask_words(n_id) && rc == SMOE_OK; i++) {
        *has_any |= mask[i] != 0;
    }
    return rc;
}

bool constraint_may_end(const constraint_run *r) {
    return r->accepts;
}

bool constraint_must_end(const constraint_run *r) {
    return r->n == 0;
}

static int refuse(const grammar_walker *w, size_t at, size_t n, smoe_error *err) {
    return w->is_exceeded
               ? err_set(err, SMOE_ERR_UNSUPPORTED,
                         "constraint: the text is nested too deep, or the grammar too ambiguous")
               : err_set(err, SMOE_ERR_ARGUMENT,
                         "constraint: byte %zu of %zu does not go on with the grammar", at, n);
}

/* Makes room when half of what was left the last time is used up, so that it seldom happens however
 * deep the text is nested. */
static void collect_when_full(constraint_run *r) {
    grammar_walker *w = &r->walker;
    if (w->n_node < r->full_node && w->n_link < r->full_link) {
        return;
    }
    walker_collect(w, r->config, r->n);
    r->full_node = w->n_node + (WALK_NODES - w->n_node) / 2;
    r->full_link = w->n_link + (WALK_LINKS - w->n_link) / 2;
}

int constraint_take_bytes(constraint_run *r, const char *bytes, size_t n, smoe_error *err) {
    grammar_walker *w = &r->walker;
    const grammar_config *from = r->config;
    uint32_t n_from = r->n;
    bool accepts = r->accepts;
    collect_when_full(r);
    uint32_t n_node = w->n_node;
    uint32_t n_link = w->n_link;
    for (size_t i = 0; i < n; i++) {
        grammar_config *to = r->spare[i % 2];
        uint32_t n_to = walker_step(w, from, n_from, (uint8_t)bytes[i], to, MASK_WIDTH);
        if (w->is_exceeded || (n_to == 0 && !w->accepts)) {
            int rc = refuse(w, i, n, err);
            walker_release(w, n_node, n_link);
            return rc;
        }
        from = to;
        n_from = n_to;
        accepts = w->accepts;
    }
    if (n) {
        grammar_config *last = r->spare[(n - 1) % 2];
        r->spare[(n - 1) % 2] = r->config;
        r->config = last;
    }
    r->n = n_from;
    r->accepts = accepts;
    return SMOE_OK;
}

int constraint_take(constraint_run *r, int32_t id, smoe_error *err) {
    const mask_tokens *t = &r->constraint->tokens;
    if (id < 0 || (uint32_t)id >= t->n_id || t->at[id] == t->at[id + 1]) {
        return err_set(err, SMOE_ERR_ARGUMENT, "constraint: token %d has no text", id);
    }
    return constraint_take_bytes(r, t->bytes + t->at[id], t->at[id + 1] - t->at[id], err);
}
