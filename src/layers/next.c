/* What comes next; see next.h. */
#include "layers/next.h"

static linear_job read_of(const weight *w, int32_t n_tok) {
    return linear_of(w, NULL, NULL, 0, n_tok);
}

void next_is_attention_out(const exec *e, int32_t layer, int32_t n_tok) {
    linear_job job = read_of(&e->scout->layer[layer][ROLE_ATTN_O], n_tok);
    linear_next(e, &job, 1);
}

void next_is_ffn(const exec *e, int32_t layer, int32_t n_tok) {
    bool is_moe = e->spec->layer[layer].ffn.kind == FFN_MOE;
    linear_job job = read_of(&e->scout->layer[layer][is_moe ? ROLE_ROUTER : ROLE_FFN_GATE], n_tok);
    linear_next(e, &job, 1);
}

void next_is_layer(const exec *e, int32_t layer, int32_t n_tok) {
    if (layer >= e->spec->n_layer) {
        linear_job head = read_of(&e->scout->global[ROLE_HEAD], n_tok);
        linear_next(e, &head, 1);
        return;
    }
    const weight *w = e->scout->layer[layer];
    linear_job qkv[3] = {read_of(&w[ROLE_ATTN_Q], n_tok), read_of(&w[ROLE_ATTN_K], n_tok),
                         read_of(&w[ROLE_ATTN_V], n_tok)};
    linear_next(e, qkv, 3);
}
