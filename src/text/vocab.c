/* The token store; see vocab.h. One hash table by bytes; immutable after the build. */
#include "text/vocab.h"

#include <string.h>
#include <xxhash.h>

#include "base/limits.h"
#include "base/utf8.h"

/* ---- the byte alphabet of GPT-2: printable Latin-1 stands for itself, the other 68 bytes in order
 * for U+0100 and up */

static bool is_printable(uint32_t b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xff && b != 0xad);
}

/* -1 when cp stands for no byte. */
static int byte_of(uint32_t cp) {
    if (cp < 0x100) {
        return is_printable(cp) ? (int)cp : -1;
    }
    uint32_t n = cp - 0x100; /* the n-th byte that is not printable: 0..20, 7f..a0, ad */
    if (n <= 0x20) {
        return (int)n;
    }
    if (n <= 0x42) {
        return (int)(n - 0x21 + 0x7f);
    }
    return n == 0x43 ? 0xad : -1;
}

size_t vocab_map_bytes(const char *content, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t step = utf8_decode((const uint8_t *)content + i, n - i, &cp);
        int b = step ? byte_of(cp) : -1;
        if (b < 0) {
            return SIZE_MAX;
        }
        out[used++] = (char)b;
        i += step;
    }
    return used;
}

/* ---- the store */

int vocab_init(vocab *v, uint32_t n_id, uint32_t n_token, smoe_error *err) {
    uint32_t n_slot = 16;
    while (n_slot < n_token + n_token / 2) {
        n_slot *= 2;
    }
    v->bytes.max_bytes = LIMIT_TOKENIZER_BYTES;
    v->tokens = mem_array(n_id, sizeof *v->tokens);
    v->slots = mem_array(n_slot, sizeof *v->slots);
    v->n_id = n_id;
    v->slot_mask = n_slot - 1;
    return v->tokens && v->slots ? SMOE_OK : err_no_memory(err, n_id * sizeof *v->tokens);
}

void vocab_free(vocab *v) {
    free(v->tokens);
    free(v->slots);
    buf_free(&v->bytes);
    *v = (vocab){0};
}

static uint32_t first_slot(const vocab *v, const char *bytes, size_t n, bool is_raw) {
    return (uint32_t)XXH3_64bits_withSeed(bytes, n, is_raw) & v->slot_mask;
}

int32_t vocab_find(const vocab *v, const char *bytes, size_t n, bool is_raw) {
    for (uint32_t slot = first_slot(v, bytes, n, is_raw); v->slots[slot];
         slot = (slot + 1) & v->slot_mask) {
        uint32_t id = v->slots[slot] - 1;
        const vocab_token *t = &v->tokens[id];
        if (t->bytes == n && t->is_raw == is_raw && memcmp(vocab_text(v, id), bytes, n) == 0) {
            return (int32_t)id;
        }
    }
    return -1;
}

int32_t vocab_find_content(const vocab *v, const char *content, size_t bytes) {
    char local[512];
    if (!v->is_byte_level) {
        return vocab_find(v, content, bytes, false);
    }
    char *mapped = bytes <= sizeof local ? local : malloc(bytes);
    if (!mapped) {
        return -1;
    }
    size_t n = vocab_map_bytes(content, bytes, mapped);
    int32_t id =
        n == SIZE_MAX ? vocab_find(v, content, bytes, true) : vocab_find(v, mapped, n, false);
    if (mapped != local) {
        free(mapped);
    }
    return id;
}

static void insert_from(vocab *v, uint32_t slot, uint32_t id) {
    while (v->slots[slot]) {
        slot = (slot + 1) & v->slot_mask;
    }
    v->slots[slot] = id + 1;
}

/* Makes a token of the last n bytes of the store; it cannot be found yet. */
static void set_token(vocab *v, uint32_t id, size_t n, bool is_raw, bool is_findable) {
    vocab_token *t = &v->tokens[id];
    t->is_raw = is_raw;
    t->offset = (uint32_t)(v->bytes.bytes - n);
    t->bytes = (uint32_t)n;
    t->is_present = true;
    t->is_findable = is_findable;
    t->type = TEXT_TOKEN_NORMAL;
    v->max_token_bytes = n > v->max_token_bytes ? (uint32_t)n : v->max_token_bytes;
}

static void add_token(vocab *v, uint32_t id, size_t n, bool is_raw, bool is_findable) {
    set_token(v, id, n, is_raw, is_findable);
    if (is_findable) {
        insert_from(v, first_slot(v, vocab_text(v, id), n, is_raw), id);
    }
}

int vocab_add(vocab *v, uint32_t id, const char *content, size_t bytes, bool is_findable,
              smoe_error *err) {
    size_t offset = v->bytes.bytes;
    /* the content first, to have the room; then the bytes it stands for over it */
    int rc = buf_append(&v->bytes, content, bytes, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    size_t n = v->is_byte_level ? vocab_map_bytes(content, bytes, v->bytes.data + offset) : bytes;
    bool is_raw = n == SIZE_MAX;
    if (is_raw) {
        memcpy(v->bytes.data + offset, content, bytes);
        n = bytes;
    }
    v->bytes.bytes = offset + n;
    add_token(v, id, n, is_raw, is_findable);
    return SMOE_OK;
}

int vocab_add_kept(vocab *v, uint32_t id, const char *bytes, size_t n, bool is_raw,
                   bool is_findable, smoe_error *err) {
    int rc = buf_append(&v->bytes, bytes, n, err);
    if (rc == SMOE_OK) {
        add_token(v, id, n, is_raw, is_findable);
    }
    return rc;
}

int vocab_keep(vocab *v, uint32_t id, const char *bytes, size_t n, bool is_raw, bool is_findable,
               smoe_error *err) {
    int rc = buf_append(&v->bytes, bytes, n, err);
    if (rc == SMOE_OK) {
        set_token(v, id, n, is_raw, is_findable);
    }
    return rc;
}

/* Slots lie all over a table that is larger than the cache, so each is asked for AHEAD tokens
 * before it is used; waiting for them one by one took most of a start. */
void vocab_index_kept(vocab *v) {
    enum { AHEAD = 16 };
    uint32_t slot[AHEAD];
    uint32_t waiting[AHEAD];
    uint32_t n = 0;
    for (uint32_t id = 0; id < v->n_id; id++) {
        const vocab_token *t = &v->tokens[id];
        if (!t->is_findable) {
            continue;
        }
        uint32_t at = n++ % AHEAD;
        if (n > AHEAD) {
            insert_from(v, slot[at], waiting[at]);
        }
        waiting[at] = id;
        slot[at] = first_slot(v, vocab_text(v, id), t->bytes, t->is_raw);
        __builtin_prefetch(&v->slots[slot[at]], 1);
    }
    for (uint32_t i = n > AHEAD ? n - AHEAD : 0; i < n; i++) {
        insert_from(v, slot[i % AHEAD], waiting[i % AHEAD]);
    }
}
