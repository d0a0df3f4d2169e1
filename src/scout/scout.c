/* Loading of the resident tensors; see scout.h. */
#include "scout/scout.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/direct_reader.h"
#include "base/pool.h"
#include "formats/half.h"

#define SCOUT_ALIGN_BYTES 64u

/* What is not read straight to its place passes through this. */
#define STAGE_BYTES 16384u

enum { READERS = 4 }; /* enough to keep a drive busy */

/* One tensor, its place and where its description goes. */
typedef struct piece {
    const weight_ref *ref;
    weight *w;
    char *at;
} piece;

typedef struct loader {
    const source *source;
    direct_reader reader[READERS]; /* a thread's own */
    piece *piece;                  /* [n_piece], in the order of the files */
    int32_t n_piece;
    /* A vault's scout is hashed as it is read, byte by byte from its start: */
    XXH3_state_t *hash; /* NULL: there is no checksum to compare with */
    int32_t hashed_file;
    uint64_t hashed_bytes;
} loader;

static float widen(dtype type, const uint8_t *p) {
    uint16_t half;
    float f;
    if (type == DT_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&half, p, sizeof half);
    return type == DT_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* In memory: vectors are floats there. */
static uint64_t piece_bytes(const weight_ref *ref) {
    return ref->n_row == 1 ? (uint64_t)ref->n_col * sizeof(float) : ref->bytes;
}

static int read_piece_bytes(loader *l, int32_t thread, const weight_ref *ref, uint64_t at_bytes,
                            void *buf, size_t bytes, smoe_error *err) {
    const model_file *file = &l->source->files.file[ref->file];
    int rc = direct_read(&l->reader[thread], file->path, file->fd, ref->offset + at_bytes, buf,
                         bytes, err);
    if (rc != SMOE_OK) {
        return err_prefix(err, rc, "tensor %s", ref->name);
    }
    if (l->hash && ref->file == l->hashed_file) {
        XXH3_64bits_update(l->hash, buf, bytes);
        l->hashed_bytes += bytes;
    }
    return SMOE_OK;
}

/* Hashes what lies between the tensors: the header, padding, the end. */
static int hash_until(loader *l, uint64_t end_bytes, smoe_error *err) {
    uint8_t stage[STAGE_BYTES];
    const model_file *file = &l->source->files.file[l->hashed_file];
    while (l->hashed_bytes < end_bytes) {
        uint64_t left = end_bytes - l->hashed_bytes;
        size_t n = left < sizeof stage ? (size_t)left : sizeof stage;
        int rc = direct_read(&l->reader[0], file->path, file->fd, l->hashed_bytes, stage, n, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        XXH3_64bits_update(l->hash, stage, n);
        l->hashed_bytes += n;
    }
    return SMOE_OK;
}

static int read_vector(loader *l, int32_t thread, const weight_ref *ref, float *out,
                       smoe_error *err) {
    uint8_t stage[STAGE_BYTES];
    uint32_t size = ref->type == DT_F32 ? 4 : 2;
    for (int32_t done = 0; done < ref->n_col;) {
        int32_t n = (int32_t)(sizeof stage / size);
        n = n < ref->n_col - done ? n : ref->n_col - done;
        int rc =
            read_piece_bytes(l, thread, ref, (uint64_t)done * size, stage, (size_t)n * size, err);
        if (rc != SMOE_OK) {
            return rc;
        }
        for (int32_t i = 0; i < n; i++) {
            out[done + i] = widen(ref->type, stage + (size_t)i * size);
        }
        done += n;
    }
    return SMOE_OK;
}

static int load_piece(loader *l, int32_t thread, const piece *p, smoe_error *err) {
    const weight_ref *ref = p->ref;
    if (l->hash && ref->file == l->hashed_file) {
        int rc = hash_until(l, ref->offset, err);
        if (rc != SMOE_OK) {
            return rc;
        }
    }
    bool is_vector = ref->n_row == 1;
    uint64_t bytes = piece_bytes(ref);
    *p->w = (weight){.data = p->at,
                     .type = is_vector ? DT_F32 : ref->type,
                     .n_row = ref->n_row,
                     .n_col = ref->n_col,
                     .row_bytes = (size_t)(bytes / (uint64_t)ref->n_row)};
    return is_vector ? read_vector(l, thread, ref, (float *)(void *)p->at, err)
                     : read_piece_bytes(l, thread, ref, 0, p->at, (size_t)bytes, err);
}

/* ---- the whole */

/* Calls take for each tensor that the spec has, in the order of roles. */
static void for_each_ref(const source *s, scout *sc,
                         void (*take)(void *user, const weight_ref *ref, weight *w), void *user) {
    for (int r = 0; r < ROLE_FIRST_OF_LAYER; r++) {
        if (s->global[r].name) {
            take(user, &s->global[r], sc ? &sc->global[r] : NULL);
        }
    }
    for (int32_t i = 0; i < s->spec.n_layer; i++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            if (s->layer[i][r].name) {
                take(user, &s->layer[i][r], sc ? &sc->layer[i][r] : NULL);
            }
        }
    }
}

static void add_bytes(void *user, const weight_ref *ref, weight *w) {
    (void)w;
    *(uint64_t *)user += round_up(piece_bytes(ref), SCOUT_ALIGN_BYTES);
}

uint64_t scout_load_bytes(const source *s) {
    uint64_t bytes = 0;
    for_each_ref(s, NULL, add_bytes, &bytes);
    return bytes;
}

static void count_piece(void *user, const weight_ref *ref, weight *w) {
    (void)ref;
    (void)w;
    ++*(int32_t *)user;
}

typedef struct placing {
    loader *loader;
    char *at;
} placing;

static void place_piece(void *user, const weight_ref *ref, weight *w) {
    placing *p = user;
    p->loader->piece[p->loader->n_piece++] = (piece){ref, w, p->at};
    p->at += round_up(piece_bytes(ref), SCOUT_ALIGN_BYTES);
}

static int by_position(const void *a, const void *b) {
    const weight_ref *x = ((const piece *)a)->ref;
    const weight_ref *y = ((const piece *)b)->ref;
    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check_hash(loader *l, smoe_error *err) {
    const model_file *file = &l->source->files.file[l->hashed_file];
    int rc = hash_until(l, file->bytes, err);
    if (rc == SMOE_OK && XXH3_64bits_digest(l->hash) != l->source->weights_checksum) {
        rc = err_set(err, SMOE_ERR_CHECKSUM,
                     "%s is damaged: it differs from the checksum in %s; restore it from a good "
                     "copy, or sculpt again (smoe verify names the tensor)",
                     file->path, l->source->path);
    }
    return rc;
}

/* ---- reading with several threads */

typedef struct reading {
    loader *l;
    pthread_mutex_t mutex;
    int32_t first_bad; /* piece; n_piece: none */
    int rc;
    smoe_error *err; /* of first_bad */
} reading;

static bool is_past_bad(reading *r, int32_t i) {
    pthread_mutex_lock(&r->mutex);
    bool past = i > r->first_bad;
    pthread_mutex_unlock(&r->mutex);
    return past;
}

static void read_task(void *job, int32_t i, int32_t thread) {
    reading *r = job;
    smoe_error err;
    int rc = is_past_bad(r, i) ? SMOE_OK : load_piece(r->l, thread, &r->l->piece[i], &err);
    if (rc != SMOE_OK) {
        pthread_mutex_lock(&r->mutex);
        if (i < r->first_bad) { /* the same error whichever thread comes first */
            r->first_bad = i;
            r->rc = rc;
            *r->err = err;
        }
        pthread_mutex_unlock(&r->mutex);
    }
}

static int read_pieces(loader *l, smoe_error *err) {
    pool *readers = NULL;
    smoe_error found = {0};
    reading r = {.l = l, .first_bad = l->n_piece, .rc = SMOE_OK, .err = &found};
    /* a checksum is over the bytes in order */
    int rc = pool_open(&readers, l->hash ? 1 : READERS, err);
    if (rc == SMOE_OK) {
        pthread_mutex_init(&r.mutex, NULL);
        pool_run(readers, read_task, &r, l->n_piece);
        pthread_mutex_destroy(&r.mutex);
        pool_close(readers);
        rc = r.rc;
        if (rc != SMOE_OK && err) {
            *err = found;
        }
    }
    return rc;
}

/* Takes the lists and the map; reads in file order, which is also what drives like. */
static int load_all(loader *l, scout *out, smoe_error *err) {
    const source *s = l->source;
    int32_t n = 0;
    for_each_ref(s, NULL, count_piece, &n);
    l->piece = mem_array((size_t)n, sizeof *l->piece);
    out->layer = mem_array((size_t)s->spec.n_layer, sizeof *out->layer);
    if (s->weights_checksum) {
        l->hash = XXH3_createState();
    }
    if (!l->piece || !out->layer || (s->weights_checksum && !l->hash)) {
        return err_no_memory(err, (uint64_t)n * sizeof *l->piece);
    }
    if (l->hash) {
        XXH3_64bits_reset(l->hash);
        l->hashed_file = s->global[ROLE_EMBED].file;
    }
    for_each_ref(s, out, place_piece, &(placing){l, out->base});
    qsort(l->piece, (size_t)n, sizeof *l->piece, by_position);
    int rc = read_pieces(l, err);
    return rc == SMOE_OK && l->hash ? check_hash(l, err) : rc;
}

/* Locked memory is not paged out when something else wants it. A system that allows less than the
 * scout (RLIMIT_MEMLOCK) leaves it as it is. */
static bool lock_pages(const scout *sc) {
    return mlock(sc->base, (size_t)sc->bytes) == 0;
}

/* Hands each matrix its factor; those of experts are theirs to take. */
static void link_factors(scout *sc, const spec *s) {
    sc->global[ROLE_HEAD].factor = sc->global[ROLE_HEAD_FACTOR].data;
    for (int32_t i = 0; i < s->n_layer; i++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT; r++) {
            role factor = role_factor((role)r);
            if (factor < ROLE_COUNT) {
                sc->layer[i][r].factor = sc->layer[i][factor].data;
            }
        }
    }
}

static void close_readers(loader *l) {
    for (int32_t i = 0; i < READERS; i++) {
        direct_reader_close(&l->reader[i]);
    }
}

static int open_readers(loader *l, smoe_error *err) {
    int rc = SMOE_OK;
    for (int32_t i = 0; i < READERS && rc == SMOE_OK; i++) {
        rc = direct_reader_open(&l->reader[i], err);
    }
    return rc;
}

int scout_load(scout *out, const source *s, smoe_error *err) {
    *out = (scout){.bytes = scout_load_bytes(s)};
    loader l = {.source = s};
    int rc = mem_map(&out->base, out->bytes, err);
    rc = rc ? rc : open_readers(&l, err);
    if (rc == SMOE_OK) {
        /* Kernels read many rows at once, each on a page of its own: with small pages a decoded
         * token spends a third of its time in page walks. A system that refuses changes nothing
         * else. */
        (void)madvise(out->base, (size_t)out->bytes, MADV_HUGEPAGE);
    }
    rc = rc == SMOE_OK ? load_all(&l, out, err)
                       : err_prefix(err, rc, "resident weights of %s", s->path);
    close_readers(&l);
    free(l.piece);
    XXH3_freeState(l.hash);
    if (rc != SMOE_OK) {
        scout_free(out);
        return rc;
    }
    out->is_locked = lock_pages(out);
    link_factors(out, &s->spec);
    if (s->spec.tied_head) {
        out->global[ROLE_HEAD] = out->global[ROLE_EMBED];
    }
    return SMOE_OK;
}

void scout_free(scout *sc) {
    mem_unmap(sc->base, sc->bytes);
    free(sc->layer);
    *sc = (scout){0};
}
