/* What makes texts cheap: most tokens consist of core characters, and most states of a grammar
 * either read any of these or none. For a state that reads k of them, whatever they are, the tokens
 * of at most k core characters are known beforehand, and only the others need a walk. */
#include <string.h>

#include "base/utf8.h"
#include "text/mask_impl.h"

/* ---- tokens */

/* Characters of a text made of core characters only; else MASK_CORE_CHARS + 1. */
static uint32_t core_chars(const char *text, uint32_t bytes) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bytes && n <= MASK_CORE_CHARS; n++) {
        uint32_t cp;
        size_t used = utf8_decode((const uint8_t *)text + i, bytes - i, &cp);
        if (used == 0 || !mask_is_core(cp)) {
            return MASK_CORE_CHARS + 1;
        }
        i += (uint32_t)used;
    }
    return n;
}

int mask_split_tokens(smoe_constraint *c, smoe_error *err) {
    const mask_tokens *t = &c->tokens;
    int32_t *all = mem_array(t->n_id, sizeof *all);
    int32_t *rest = mem_array(t->n_id, sizeof *rest);
    int32_t *rest_long = mem_array(t->n_id, sizeof *rest_long);
    uint32_t n_all = 0;
    uint32_t n_rest = 0;
    uint32_t n_long = 0;
    c->core = mem_array((MASK_CORE_CHARS + 1) * c->n_word, sizeof *c->core);
    int rc = all && rest && rest_long && c->core
                 ? SMOE_OK
                 : err_no_memory(err, (MASK_CORE_CHARS + 1) * c->n_word * sizeof *c->core);
    for (uint32_t id = 0; id < t->n_id && rc == SMOE_OK; id++) {
        uint32_t bytes = t->at[id + 1] - t->at[id];
        if (bytes == 0) {
            continue;
        }
        uint32_t n = core_chars(t->bytes + t->at[id], bytes);
        all[n_all++] = (int32_t)id;
        if (n > MASK_CORE_CHARS && bytes <= MASK_REST_BYTES) {
            rest[n_rest++] = (int32_t)id;
        } else if (n > MASK_CORE_CHARS) {
            rest_long[n_long++] = (int32_t)id;
        }
        for (; n <= MASK_CORE_CHARS; n++) {
            c->core[n * c->n_word + id / 64] |= 1ull << (id % 64);
        }
    }
    rc = rc ? rc : mask_trie_build(&c->full, t, all, n_all, err);
    rc = rc ? rc : mask_trie_build(&c->rest, t, rest, n_rest, err);
    rc = rc ? rc : mask_trie_build(&c->rest_long, t, rest_long, n_long, err);
    free(all);
    free(rest);
    free(rest_long);
    return rc;
}

/* ---- states */

#define UNKNOWN UINT32_MAX

typedef struct run_finder {
    const grammar_program *p;
    uint32_t *tail[2]; /* [n_state]: where one and where two continuation bytes lead, whatever they
                          are; 0: not to one place */
    uint32_t *after;   /* [n_state]: where a core character leads, whatever it is */
} run_finder;

/* Where n (0 to 2) bytes of 0x80 to 0xbf lead. */
static uint32_t tail_of(run_finder *f, uint32_t state, int n) {
    if (n == 0 || state == 0) {
        return state;
    }
    uint32_t *known = &f->tail[n - 1][state];
    if (*known == UNKNOWN) {
        uint32_t to = tail_of(f, grammar_next(f->p, state, 0x80), n - 1);
        for (unsigned b = 0x81; to && b <= 0xbf; b++) {
            if (tail_of(f, grammar_next(f->p, state, (uint8_t)b), n - 1) != to) {
                to = 0;
            }
        }
        *known = to;
    }
    return *known;
}

/* Whether all characters with this first byte lead to a state. low and high bound the second byte
 * (Unicode, table 3-7). */
static bool lead_goes_to(run_finder *f, uint32_t state, uint8_t lead, uint32_t to) {
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    int left = lead >= 0xf0 ? 2 : lead >= 0xe0 ? 1 : 0;
    uint32_t middle = grammar_next(f->p, state, lead);
    for (unsigned b = low; middle && b <= high; b++) {
        if (tail_of(f, grammar_next(f->p, middle, (uint8_t)b), left) != to) {
            return false;
        }
    }
    return middle != 0;
}

static uint32_t find_after(run_finder *f, uint32_t state) {
    uint32_t to = grammar_next(f->p, state, ' ');
    for (unsigned b = 0x21; to && b < 0x80; b++) {
        if (mask_is_core(b) && grammar_next(f->p, state, (uint8_t)b) != to) {
            to = 0;
        }
    }
    for (unsigned b = 0xc2; to && b <= 0xf4; b++) {
        to = lead_goes_to(f, state, (uint8_t)b, to) ? to : 0;
    }
    return to;
}

static bool reads_core(const grammar_program *p, uint32_t state) {
    for (unsigned b = 0x20; b < 256; b++) {
        if ((b >= 0x80 || mask_is_core(b)) && grammar_next(p, state, (uint8_t)b)) {
            return true;
        }
    }
    return false;
}

/* A run that ends must end for sure: no rule begins or ends within it, and no core character goes
 * on after it. */
static uint8_t find_run(const run_finder *f, uint32_t state) {
    uint8_t n = 0;
    bool is_plain = true;
    while (n < MASK_CORE_CHARS && f->after[state]) {
        state = f->after[state];
        is_plain = is_plain && f->p->flags[state] == GRAMMAR_READS;
        n++;
    }
    return n == MASK_CORE_CHARS || (n && is_plain && !reads_core(f->p, state)) ? n : 0;
}

int mask_find_runs(smoe_constraint *c, smoe_error *err) {
    uint32_t n = c->program.n_state;
    run_finder f = {.p = &c->program};
    for (int i = 0; i < 2; i++) {
        f.tail[i] = mem_array(n, sizeof *f.tail[i]);
    }
    f.after = mem_array(n, sizeof *f.after);
    c->run = mem_array(n, 1);
    int rc = f.tail[0] && f.tail[1] && f.after && c->run ? SMOE_OK : err_no_memory(err, 13ull * n);
    if (rc == SMOE_OK) {
        memset(f.tail[0], 0xff, n * sizeof *f.tail[0]); /* UNKNOWN */
        memset(f.tail[1], 0xff, n * sizeof *f.tail[1]);
    }
    for (uint32_t s = 1; s < n && rc == SMOE_OK; s++) {
        f.after[s] = find_after(&f, s);
    }
    for (uint32_t s = 1; s < n && rc == SMOE_OK; s++) {
        c->run[s] = find_run(&f, s);
    }
    rc = rc ? rc : mask_find_same(c, f.after, err);
    free(f.tail[0]);
    free(f.tail[1]);
    free(f.after);
    return rc;
}
