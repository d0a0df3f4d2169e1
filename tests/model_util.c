/* Shared parts of the model tests; see model_util.h. */
#include "model_util.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "formats/safetensors.h"
#include "streamer/streamer.h"

opened open_with(const char *path, const smoe_model_options *options) {
    smoe_error err;
    smoe_model_options defaults = {.n_thread = 2};
    opened o;
    CHECK_OK(smoe_model_open(&o.model, path, options ? options : &defaults, &err));
    CHECK_OK(smoe_session_open(&o.session, o.model, &err));
    return o;
}

void close_opened(opened *o) {
    smoe_session_close(o->session);
    smoe_model_close(o->model);
}

static void *truth(const char *path, const char *name, dtype type, size_t *n) {
    smoe_error err;
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    CHECK_OK(safetensors_open(&table, &names, &files, path, NULL, &err));
    const tensor *t = tensor_table_find(&table, name);
    CHECK(t && t->type == type);
    char *data = malloc(t->bytes + 1);
    CHECK_OK(file_read_at(files.file[0].fd, path, t->offset, data, t->bytes, &err));
    *n = t->bytes / (type == DT_I64 ? 8 : 4);
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
    return data;
}

float *truth_floats(const char *path, const char *name, size_t *n) {
    return truth(path, name, DT_F32, n);
}

int32_t *truth_int32(const char *path, const char *name, size_t *n) {
    return truth(path, name, DT_I32, n);
}

int32_t *truth_ids(const char *path, const char *name, size_t *n) {
    int64_t *wide = truth(path, name, DT_I64, n);
    int32_t *ids = malloc(*n * sizeof *ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)wide[i];
    }
    free(wide);
    return ids;
}

typedef struct collect {
    float *out;
    size_t vocab;
} collect;

static bool collect_row(void *user, size_t position_tok, const float *logits) {
    collect *c = user;
    memcpy(c->out + position_tok * c->vocab, logits, c->vocab * sizeof *logits);
    return false;
}

float *all_logits(opened *o, const int32_t *ids, size_t n_id) {
    smoe_error err;
    size_t vocab = (size_t)smoe_model_info(o->model)->vocab_size;
    collect c = {malloc(n_id * vocab * sizeof(float)), vocab};
    CHECK_OK(smoe_session_score(o->session, ids, n_id, collect_row, &c, &err));
    return c.out;
}

int32_t *greedy(opened *o, const int32_t *prompt, size_t n_prompt, size_t n) {
    smoe_error err;
    int32_t *ids = NULL;
    size_t n_id = 0;
    smoe_generate_options options = {.sampling = {.top_p = 1, .repetition_penalty = 1},
                                     .max_tok = (int32_t)n,
                                     .ignore_end = true};
    CHECK_OK(smoe_generate(o->session, prompt, n_prompt, &options, &ids, &n_id, NULL, &err));
    CHECK_INT(n_id, n);
    return ids;
}

typedef struct nll_state {
    const int32_t *ids;
    size_t n_id;
    size_t vocab;
    double sum;
} nll_state;

static bool nll_row(void *user, size_t position_tok, const float *logits) {
    nll_state *s = user;
    if (position_tok + 1 < s->n_id) {
        double max = -HUGE_VAL;
        double sum = 0;
        for (size_t i = 0; i < s->vocab; i++) {
            max = fmax(max, (double)logits[i]);
        }
        for (size_t i = 0; i < s->vocab; i++) {
            sum += exp((double)logits[i] - max);
        }
        s->sum += max + log(sum) - (double)logits[s->ids[position_tok + 1]];
    }
    return false;
}

double window_nll(opened *o, const int32_t *ids, size_t n_id) {
    smoe_error err;
    nll_state s = {ids, n_id, (size_t)smoe_model_info(o->model)->vocab_size, 0};
    CHECK_OK(smoe_session_score(o->session, ids, n_id, nll_row, &s, &err));
    return s.sum / (double)(n_id - 1);
}

const char *sculpted(const char *checkpoint, const char *type) {
    smoe_error err;
    char name[64];
    snprintf(name, sizeof name, "%s.smoe", type);
    const char *path = test_path(name);
    if (!file_exists(path)) {
        smoe_sculpt_options o = {.expert_type = type, .n_thread = 2};
        CHECK_OK(smoe_sculpt(checkpoint, path, &o, &err));
    }
    return path;
}

uint64_t ring_floor(const char *path) {
    smoe_error err;
    source *s;
    CHECK_OK(source_open(&s, path, &err));
    uint64_t floor = streamer_ring_floor(s);
    source_close(s);
    return floor;
}
