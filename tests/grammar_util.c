/* See grammar_util.h. */
#include "grammar_util.h"

#include "text/tokenizer.h"

enum { WIDTH = 4096 };

int machine_open(machine *m, grammar_reader *read, const char *text, smoe_error *err) {
    grammar g;
    uint32_t root = 0;
    *m = (machine){0};
    grammar_init(&g, err);
    int rc = read(&g, text, strlen(text), &root);
    rc = rc ? rc : grammar_compile(&m->program, &g, root, "grammar", err);
    grammar_free(&g);
    rc = rc ? rc : walker_open(&m->walker, &m->program, err);
    if (rc != SMOE_OK) {
        machine_close(m);
    }
    return rc;
}

void machine_close(machine *m) {
    walker_close(&m->walker);
    grammar_program_free(&m->program);
}

bool machine_reads(machine *m, const char *bytes, size_t n, bool *is_whole) {
    static grammar_config place[2][WIDTH];
    walker_release(&m->walker, WALK_END + 1, 1);
    uint32_t width = walker_enter(&m->walker, m->program.root, WALK_END, place[0], WIDTH);
    for (size_t i = 0; i < n; i++) {
        CHECK(!m->walker.is_exceeded);
        width = walker_step(&m->walker, place[i % 2], width, (uint8_t)bytes[i], place[1 - i % 2],
                            WIDTH);
        if (width == 0 && !m->walker.accepts) {
            CHECK(!m->walker.is_exceeded);
            *is_whole = false;
            return false;
        }
    }
    CHECK(!m->walker.is_exceeded);
    *is_whole = m->walker.accepts;
    return true;
}

bool machine_accepts(machine *m, const char *text) {
    bool is_whole;
    return machine_reads(m, text, strlen(text), &is_whole) && is_whole;
}

const smoe_tokenizer *small_tokenizer(void) {
    static smoe_tokenizer *t;
    smoe_error err;
    if (!t) {
        CHECK_OK(smoe_tokenizer_open(&t, test_model("tales-8m"), &err));
    }
    return t;
}

void slow_mask(machine *m, const smoe_tokenizer *t, const char *text, size_t bytes,
               uint64_t *mask) {
    static grammar_config before[WIDTH], place[2][WIDTH];
    grammar_walker *w = &m->walker;
    size_t n_id = smoe_tokenizer_size(t);
    memset(mask, 0, mask_words(n_id) * sizeof *mask);
    walker_release(w, WALK_END + 1, 1);
    uint32_t width = walker_enter(w, m->program.root, WALK_END, before, WIDTH);
    for (size_t i = 0; i < bytes; i++) {
        width = walker_step(w, before, width, (uint8_t)text[i], place[0], WIDTH);
        memcpy(before, place[0], width * sizeof *before);
    }
    uint32_t n_node = w->n_node;
    uint32_t n_link = w->n_link;
    for (size_t id = 0; id < n_id; id++) {
        size_t n;
        const char *token = tokenizer_token_bytes(t, (int32_t)id, &n);
        uint32_t now = width;
        const grammar_config *from = before;
        bool is_alive = token && n > 0;
        for (size_t i = 0; i < n && is_alive; i++) {
            now = walker_step(w, from, now, (uint8_t)token[i], place[i % 2], WIDTH);
            CHECK(!w->is_exceeded);
            from = place[i % 2];
            is_alive = now > 0 || w->accepts;
        }
        mask[id / 64] |= (uint64_t)is_alive << (id % 64);
        walker_release(w, n_node, n_link);
    }
}

int32_t random_bit(const uint64_t *mask, size_t n_id) {
    size_t n = 0;
    for (size_t i = 0; i < mask_words(n_id); i++) {
        n += (size_t)__builtin_popcountll(mask[i]);
    }
    size_t left = n ? (size_t)(test_rand() % n) : 0;
    for (size_t id = 0; id < n_id && n; id++) {
        if (mask_has(mask, (int32_t)id) && left-- == 0) {
            return (int32_t)id;
        }
    }
    return -1;
}

/* One of the tokens that end strings, arrays and objects, when allowed. */
static int32_t closing(const smoe_tokenizer *t, const uint64_t *mask) {
    static const char *const texts[] = {"\"", "]", "}"};
    int32_t id = tokenizer_id(t, texts[test_rand() % 3], 1);
    return mask_has(mask, id) ? id : -1;
}

char *random_text(const smoe_constraint *c, const smoe_tokenizer *t, size_t max_tok,
                  size_t *bytes) {
    smoe_error err;
    size_t n_id = smoe_tokenizer_size(t);
    uint64_t *mask = calloc(mask_words(n_id), sizeof *mask);
    byte_buf text = {.max_bytes = SIZE_MAX / 2};
    constraint_run *run;
    bool is_over = false;
    CHECK(mask);
    CHECK_OK(constraint_start(&run, c, &err));
    CHECK_OK(buf_append(&text, "", 0, &err));
    for (size_t i = 0; i < max_tok && !is_over; i++) {
        bool has_any;
        size_t n;
        CHECK_OK(constraint_mask(run, mask, n_id, &has_any, &err));
        CHECK(has_any || constraint_may_end(run));
        CHECK(has_any != constraint_must_end(run));
        is_over = !has_any || (constraint_may_end(run) && test_rand() % 3 == 0);
        if (is_over) {
            break;
        }
        int32_t id = test_rand() % 3 == 0 ? closing(t, mask) : -1;
        id = id < 0 ? random_bit(mask, n_id) : id;
        const char *token = tokenizer_token_bytes(t, id, &n);
        CHECK_OK(buf_append(&text, token, n, &err));
        CHECK_OK(constraint_take(run, id, &err));
    }
    constraint_stop(run);
    free(mask);
    if (!is_over) {
        buf_free(&text);
    }
    *bytes = text.bytes;
    return text.data;
}
