/* The vault container: its header against lies and damage, and smoe_verify against flipped bits. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/vault.h"
#include "model/source.h"
#include "tiny_checkpoint.h"

static smoe_error err;

/* ---- the header alone */

enum { N_LAYER = 3, N_EXPERT = 5, N_RECORD = N_LAYER * N_EXPERT, N_TENSOR = 7 };

static vault_layer layer[N_LAYER];
static vault_record record[N_RECORD];
static uint64_t scout_tensor[N_TENSOR];

static vault_content make_content(void) {
    static const char spec_text[] = "{\"family\": \"test\"}";
    vault_content c = {.layer = layer,
                       .n_layer = N_LAYER,
                       .record = record,
                       .n_record = N_RECORD,
                       .scout = {12345, 800, test_rand(), test_rand()},
                       .scout_tensor = scout_tensor,
                       .n_scout_tensor = N_TENSOR};
    c.text[VAULT_SPEC] = (vault_text){spec_text, sizeof spec_text - 1};
    c.text[VAULT_CHAT_TEMPLATE] = (vault_text){"", 0};
    for (int i = 0; i < N_LAYER; i++) {
        layer[i] = (vault_layer){.layer = 2 * i, .n_expert = N_EXPERT};
        layer[i].part[VAULT_GATE] = (vault_part){.type = DT_Q4, .n_row = 32, .n_col = 96 + i};
        layer[i].part[VAULT_UP] = (vault_part){.type = DT_Q2, .n_row = 32, .n_col = 96 + i};
        layer[i].part[VAULT_DOWN] = (vault_part){.type = DT_BF16, .n_row = 96 + i, .n_col = 32};
        vault_layer_place(&layer[i]);
    }
    CHECK_OK(vault_place(&c, &err));
    for (int i = 0; i < N_RECORD; i++) {
        record[i].checksum = test_rand();
    }
    for (int i = 0; i < N_TENSOR; i++) {
        scout_tensor[i] = test_rand();
    }
    return c;
}

/* Right before an unmapped page, so that reading past the end faults. */
static uint8_t *encode(const vault_content *c) {
    uint8_t *data = test_guarded((size_t)c->header_bytes);
    vault_encode(c, data);
    return data;
}

TEST(vault_header_round_trip) {
    vault_content c = make_content(), d;
    arena a = {0};
    CHECK_OK(vault_decode(&d, encode(&c), (size_t)c.header_bytes, c.file_bytes, "v", &a, &err));
    CHECK_INT(d.n_layer, N_LAYER);
    CHECK_INT(d.n_record, N_RECORD);
    CHECK_INT(d.n_scout_tensor, N_TENSOR);
    CHECK(memcmp(d.layer, layer, sizeof layer) == 0);
    CHECK(memcmp(d.record, record, sizeof record) == 0);
    CHECK(memcmp(d.scout_tensor, scout_tensor, sizeof scout_tensor) == 0);
    CHECK(memcmp(&d.scout, &c.scout, sizeof d.scout) == 0);
    CHECK_INT(d.text[VAULT_SPEC].bytes, 18);
    CHECK(d.text[VAULT_CHAT_TEMPLATE].data && !d.text[VAULT_TOKENIZER].data);
    for (int i = 0; i < N_RECORD; i++) {
        CHECK_INT(d.record[i].offset % VAULT_RECORD_ALIGN, 0);
        CHECK_INT(d.record[i].bytes, layer[i / N_EXPERT].record_bytes);
    }
    int32_t number, expert;
    vault_record_name(&d, 7, &number, &expert);
    CHECK(number == 2 && expert == 2);
    arena_free(&a);
}

TEST(vault_header_notices_every_flipped_bit) {
    vault_content c = make_content(), d;
    uint8_t *data = encode(&c);
    for (size_t bit = 0; bit < c.header_bytes * 8; bit++) {
        arena a = {0};
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(vault_decode(&d, data, (size_t)c.header_bytes, c.file_bytes, "v", &a, &err) != 0);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        arena_free(&a);
    }
}

/* What every reader may rely on after success. */
static void check_consistent(const vault_content *d, uint64_t file_bytes) {
    int64_t n = 0;
    for (int32_t i = 0; i < d->n_layer; i++) {
        CHECK_INT(d->layer[i].first_record, n);
        n += d->layer[i].n_expert;
        for (int k = 0; k < VAULT_PARTS; k++) {
            const vault_part *p = &d->layer[i].part[k];
            CHECK(p->at_bytes + p->bytes <= d->layer[i].record_bytes && p->n_row > 0);
            CHECK(dtype_get(p->type)->is_weight);
        }
    }
    CHECK_INT(d->n_record, n);
    for (int64_t i = 0; i < n; i++) {
        CHECK(d->record[i].offset % VAULT_RECORD_ALIGN == 0);
        CHECK(d->record[i].offset >= d->header_bytes);
        CHECK(vault_record_end(&d->record[i]) <= file_bytes);
        for (int64_t j = 0; j < i; j++) {
            CHECK(d->record[i].offset != d->record[j].offset);
        }
    }
}

/* Lies with right checksums: every aligned word of the header takes every awkward value. */
TEST(vault_header_survives_lies) {
    static const uint64_t lie[] = {
        0,          1,          7,          64,         16384,
        16385,      0x7fff,     0x7fffffff, 0x80000000, 0xffffffff,
        1ull << 32, 1ull << 40, INT64_MAX,  1ull << 63, UINT64_MAX - 16383,
        UINT64_MAX};
    vault_content c = make_content(), d;
    uint8_t *data = encode(&c);
    uint8_t *clean = encode(&c);
    size_t n = (size_t)c.header_bytes;
    int n_accepted = 0;
    for (size_t at = 8; at + 8 <= n; at += 4) {
        for (size_t k = 0; k < 2 * sizeof lie / sizeof *lie; k++) {
            arena a = {0};
            memcpy(data + at, &lie[k / 2], k % 2 ? 4 : 8);
            vault_seal(data, n);
            if (vault_decode(&d, data, n, c.file_bytes, "v", &a, &err) == SMOE_OK) {
                check_consistent(&d, c.file_bytes);
                n_accepted++;
            }
            CHECK(a.total_bytes <= 64 * n + (1 << 20));
            memcpy(data, clean, n);
            arena_free(&a);
        }
    }
    CHECK(n_accepted > 0);
}

TEST(vault_header_refuses_overlaps_and_cuts) {
    vault_content c = make_content(), d;
    arena a = {0};
    uint8_t *data = encode(&c);
    size_t n = (size_t)c.header_bytes;
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *part = test_guarded(cut ? cut : 1);
        memcpy(part, data, cut);
        CHECK(vault_decode(&d, part, cut, c.file_bytes, "v", &a, &err) != SMOE_OK);
        if (cut >= VAULT_PROLOGUE_BYTES) {
            vault_seal(part, cut);
            CHECK(vault_decode(&d, part, cut, c.file_bytes, "v", &a, &err) != SMOE_OK);
        }
        cut += cut / 16;
    }
    record[4].offset = record[9].offset;
    vault_encode(&c, data);
    CHECK_ERR(vault_decode(&d, data, n, c.file_bytes, "v", &a, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "overlaps");
    record[4].offset = c.file_bytes;
    vault_encode(&c, data);
    CHECK_ERR(vault_decode(&d, data, n, c.file_bytes, "v", &a, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "layer 0, expert 4");
    CHECK_HAS(err.text, "not inside the file");
    CHECK_ERR(vault_decode(&d, data, n, c.file_bytes - 1, "v", &a, &err), SMOE_ERR_FORMAT);
    arena_free(&a);
}

/* ---- whole files */

static char vault_path[1024], scout_path[1024];

static void make_vault(const char *name, const char *type) {
    char dir[1024], file[64];
    snprintf(file, sizeof file, "from-%s", name);
    snprintf(dir, sizeof dir, "%s", tiny_checkpoint_make(file, &(tiny_checkpoint){0}));
    snprintf(file, sizeof file, "%s.smoe", name);
    snprintf(vault_path, sizeof vault_path, "%s", test_path(file));
    CHECK(vault_scout_path(scout_path, sizeof scout_path, vault_path));
    smoe_sculpt_options o = {.expert_type = type, .n_thread = 1};
    CHECK_OK(smoe_sculpt(dir, vault_path, &o, &err));
}

static int open_vault(void) {
    source *s = NULL;
    int rc = source_open(&s, vault_path, &err);
    CHECK((rc == SMOE_OK) == (s != NULL));
    source_close(s);
    return rc;
}

static uint64_t size_of(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return (uint64_t)st.st_size;
}

static void flip(const char *path, uint64_t at, uint8_t bits) {
    int fd = open(path, O_RDWR);
    uint8_t b;
    CHECK(fd >= 0 && pread(fd, &b, 1, (off_t)at) == 1);
    b ^= bits;
    CHECK(pwrite(fd, &b, 1, (off_t)at) == 1);
    close(fd);
}

static void expect_damage(const char *path, uint64_t at, const char *says) {
    flip(path, at, 0x10);
    CHECK(smoe_verify(vault_path, NULL, NULL, &err) != SMOE_OK);
    CHECK_HAS(err.text, says);
    CHECK_HAS(err.text, path);
    flip(path, at, 0x10);
}

TEST(verify_names_what_is_damaged) {
    make_vault("a", "q4");
    source *s = NULL;
    CHECK_OK(source_open(&s, vault_path, &err));
    const extent x = source_expert(s, 1, 2)->ext[0];
    const weight_ref q = s->layer[1][ROLE_ATTN_Q];
    source_close(s);
    CHECK_OK(smoe_verify(vault_path, NULL, NULL, &err));
    expect_damage(vault_path, 3, "not a vault");
    expect_damage(vault_path, 8, "version");
    expect_damage(vault_path, 17, "prologue is damaged");
    expect_damage(vault_path, 300, "header is damaged");
    expect_damage(vault_path, x.offset, "layer 1, expert 2");
    expect_damage(vault_path, x.offset + x.bytes - 1, "layer 1, expert 2");
    CHECK_HAS(err.text, "expected");
    expect_damage(vault_path, x.offset + x.bytes, "between records");
    expect_damage(vault_path, size_of(vault_path) - 1, "between records");
    expect_damage(scout_path, 40, "header checksum");
    expect_damage(scout_path, q.offset + q.bytes - 1, "layers.1.attn_q.weight");
    CHECK_OK(smoe_verify(vault_path, NULL, NULL, &err));
    for (int i = 0; i < 200; i++) {
        const char *path = i % 2 ? vault_path : scout_path;
        uint64_t at = test_rand() % size_of(path);
        flip(path, at, 1);
        CHECK(smoe_verify(vault_path, NULL, NULL, &err) != SMOE_OK);
        flip(path, at, 1);
    }
}

static bool stop_at_once(void *user, const smoe_progress *p) {
    CHECK_TEXT(p->phase, "verify");
    ++*(int *)user;
    return true;
}

static bool note_end(void *user, const smoe_progress *p) {
    *(uint64_t *)user = p->total_bytes - p->done_bytes;
    return false;
}

TEST(verify_reports_progress) {
    int n = 0;
    uint64_t left = 1;
    make_vault("a", "q2");
    CHECK_ERR(smoe_verify(vault_path, stop_at_once, &n, &err), SMOE_ERR_CANCELLED);
    CHECK_INT(n, 1);
    CHECK_OK(smoe_verify(vault_path, note_end, &left, &err));
    CHECK_INT(left, 0);
    CHECK_ERR(smoe_verify(test_model("tales-8m"), NULL, NULL, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "is a checkpoint");
    CHECK(smoe_verify(test_path("none.smoe"), NULL, NULL, &err) != SMOE_OK);
}

TEST(vault_open_refuses_cut_files) {
    make_vault("a", "q4");
    uint64_t full = size_of(vault_path);
    static const uint64_t keep[] = {0, 1, 8, 47, 48, 100, 5000, 16384, 40000};
    size_t n;
    char *bytes = test_read_file(vault_path, &n);
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
        CHECK(truncate(vault_path, (off_t)keep[i]) == 0);
        CHECK(open_vault() != SMOE_OK);
        CHECK_HAS(err.text, vault_path);
    }
    test_write_file(vault_path, bytes, n);
    CHECK(truncate(vault_path, (off_t)full - 16384) == 0);
    CHECK_ERR(open_vault(), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "its header says");
    CHECK(truncate(vault_path, (off_t)full + 16384) == 0);
    CHECK_ERR(open_vault(), SMOE_ERR_FORMAT);
    test_write_file(vault_path, bytes, n);
    CHECK_OK(open_vault());
    CHECK(truncate(scout_path, (off_t)size_of(scout_path) - 1) == 0);
    CHECK_ERR(open_vault(), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "is not the scout of");
}

TEST(vault_open_needs_its_own_scout) {
    char first[1024], first_scout[1024];
    make_vault("a", "q4");
    memcpy(first, vault_path, sizeof first);
    memcpy(first_scout, scout_path, sizeof first_scout);
    make_vault("b", "bf16");
    CHECK(rename(scout_path, first_scout) == 0);
    CHECK_ERR(open_vault(), SMOE_ERR_IO);
    CHECK_HAS(err.text, "b.scout.safetensors is missing");
    memcpy(vault_path, first, sizeof first);
    CHECK_ERR(open_vault(), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "is not the scout of");
}

/* The same shape and size, other weights: only the whole file's bytes can tell. */
TEST(verify_notices_a_twin_scout) {
    char first_scout[1024];
    make_vault("a", "q4");
    memcpy(first_scout, scout_path, sizeof first_scout);
    make_vault("b", "q4");
    CHECK(rename(first_scout, scout_path) == 0);
    CHECK_OK(open_vault());
    CHECK_ERR(smoe_verify(vault_path, NULL, NULL, &err), SMOE_ERR_CHECKSUM);
    CHECK_HAS(err.text, "b.scout.safetensors");
}

/* A real header with lies inside and right checksums: refused or consistent, never a crash. */
TEST(vault_open_survives_lies) {
    make_vault("a", "q4");
    size_t n;
    char *bytes = test_read_file(vault_path, &n);
    uint64_t header;
    memcpy(&header, bytes + 16, sizeof header);
    uint8_t *clean = malloc((size_t)header), *bad = malloc((size_t)header);
    CHECK(clean && bad && header < n);
    memcpy(clean, bytes, (size_t)header);
    int fd = open(vault_path, O_WRONLY);
    for (int i = 0; i < 3000; i++) {
        memcpy(bad, clean, (size_t)header);
        size_t at = 8 + test_rand() % ((size_t)header - 16);
        uint64_t r = test_rand(), value = r % 3 ? r >> r % 64 : 0;
        memcpy(bad + at, &value, 1u << r / 64 % 4);
        vault_seal(bad, (size_t)header);
        CHECK(pwrite(fd, bad, (size_t)header, 0) == (ssize_t)header);
        (void)open_vault();
    }
    close(fd);
    free(clean);
    free(bad);
}
