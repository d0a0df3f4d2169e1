/* Loading of the resident tensors; see scout.h. */
#include "scout/scout.h"

#include <string.h>

#include "base/file.h"

#define SCOUT_ALIGN_BYTES 64u

/* Vectors pass through this on their way to floats. */
#define VECTOR_STAGE_BYTES 16384u

typedef struct placer {
    const source *source;
    char *base; /* NULL while measuring */
    uint64_t at_bytes;
} placer;

static float widen(dtype type, const uint8_t *p) {
    uint32_t bits;
    float f;
    if (type == DT_BF16) {
        uint16_t h;
        memcpy(&h, p, sizeof h);
        bits = (uint32_t)h << 16;
    } else if (type == DT_F16) {
        uint16_t h;
        memcpy(&h, p, sizeof h);
        uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023u;
        if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 */
            f = (float)mantissa * 0x1p-24f;
            return sign ? -f : f;
        }
        bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
    } else {
        memcpy(&bits, p, sizeof bits);
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

static int read_vector(const placer *p, const weight_ref *ref, float *out, smoe_error *err) {
    uint8_t stage[VECTOR_STAGE_BYTES];
    const model_file *file = &p->source->files.file[ref->file];
    uint32_t size = ref->type == DT_F32 ? 4 : 2;
    for (int32_t done = 0; done < ref->n_col;) {
        int32_t n = (int32_t)(sizeof stage / size);
        n = n < ref->n_col - done ? n : ref->n_col - done;
        int rc = file_read_at(file->fd, file->path, ref->offset + (uint64_t)done * size, stage,
                              (size_t)n * size, err);
        if (rc != SMOE_OK) {
            return err_prefix(err, rc, "tensor %s", ref->name);
        }
        for (int32_t i = 0; i < n; i++) {
            out[done + i] = widen(ref->type, stage + (size_t)i * size);
        }
        done += n;
    }
    return SMOE_OK;
}

/* Gives one tensor its place and, unless only measuring, reads it. */
static int place(placer *p, const weight_ref *ref, weight *w, smoe_error *err) {
    if (!ref->name) {
        return SMOE_OK;
    }
    bool is_vector = ref->n_row == 1;
    uint64_t bytes = is_vector ? (uint64_t)ref->n_col * sizeof(float) : ref->bytes;
    char *at = p->base ? p->base + p->at_bytes : NULL;
    p->at_bytes += round_up(bytes, SCOUT_ALIGN_BYTES);
    if (!at) {
        return SMOE_OK;
    }
    *w = (weight){.data = at,
                  .type = is_vector ? DT_F32 : ref->type,
                  .n_row = ref->n_row,
                  .n_col = ref->n_col,
                  .row_bytes = (size_t)(bytes / (uint64_t)ref->n_row)};
    if (is_vector) {
        return read_vector(p, ref, (float *)(void *)at, err);
    }
    const model_file *file = &p->source->files.file[ref->file];
    int rc = file_read_at(file->fd, file->path, ref->offset, at, (size_t)bytes, err);
    return rc == SMOE_OK ? rc : err_prefix(err, rc, "tensor %s", ref->name);
}

static int place_all(placer *p, scout *sc, smoe_error *err) {
    const source *s = p->source;
    weight none;
    int rc = SMOE_OK;
    for (int r = 0; r < ROLE_FIRST_OF_LAYER && rc == SMOE_OK; r++) {
        rc = place(p, &s->global[r], sc ? &sc->global[r] : &none, err);
    }
    for (int32_t l = 0; l < s->spec.n_layer; l++) {
        for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_COUNT && rc == SMOE_OK; r++) {
            rc = place(p, &s->layer[l][r], sc ? &sc->layer[l][r] : &none, err);
        }
    }
    return rc;
}

uint64_t scout_load_bytes(const source *s) {
    placer p = {.source = s};
    place_all(&p, NULL, NULL);
    return p.at_bytes;
}

int scout_load(scout *out, const source *s, smoe_error *err) {
    *out = (scout){.bytes = scout_load_bytes(s)};
    int rc = mem_map(&out->base, out->bytes, err);
    if (rc != SMOE_OK) {
        return err_prefix(err, rc, "resident weights of %s", s->path);
    }
    out->layer = mem_array((size_t)s->spec.n_layer, sizeof *out->layer);
    if (!out->layer) {
        scout_free(out);
        return err_no_memory(err, (uint64_t)s->spec.n_layer * sizeof *out->layer);
    }
    placer p = {.source = s, .base = out->base};
    rc = place_all(&p, out, err);
    if (rc != SMOE_OK) {
        scout_free(out);
        return rc;
    }
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
