/* Fuzz target: the input is a whole GGUF file; its header is measured piece by piece and parsed,
 * then described, its text tables filled and its tensors bound. What comes out must lie inside
 * the file. */
#include <stdlib.h>

#include "model/gguf_bind.h"
#include "model/gguf_config.h"
#include "model/gguf_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A claim that must hold for every input. */
static void must(bool claim) {
    if (!claim) {
        abort();
    }
}

/* Asking for as little as possible each time must come to the same end as having it all at once. */
static void check_measure(const uint8_t *data, size_t size) {
    smoe_error err;
    uint64_t need = 0, have = 0;
    int rc = gguf_measure(data, size, size, "fuzz", &need, &err);
    must(need == 0);
    for (int round = 0; round < 200; round++) {
        int part = gguf_measure(data, (size_t)have, size, "fuzz", &need, &err);
        if (part != SMOE_OK || need == 0) {
            must(part == rc);
            return;
        }
        must(need > have && need <= size);
        have = need;
    }
}

static void check_inside(int32_t file, uint64_t offset, uint64_t bytes, uint64_t size) {
    must(file == 0 && offset <= size && bytes <= size - offset);
}

static void check_experts(const source *s, uint64_t size) {
    for (int32_t m = 0; m < s->n_moe_layer; m++) {
        const ffn_spec *f = &s->spec.layer[spec_moe_layer(&s->spec, m)].ffn;
        for (int32_t x = 0; x < f->n_expert; x++) {
            const expert_ref *e = source_expert(s, m, x);
            for (int32_t i = 0; i < e->n_ext; i++) {
                check_inside(e->ext[i].file, e->ext[i].offset, e->ext[i].bytes, size);
            }
        }
    }
}

static void describe(const gguf_header *h, const tensor_table *table, uint64_t size) {
    smoe_error err;
    model_file file = {.path = (char[]){"fuzz"}, .fd = -1, .bytes = size};
    source s = {.files = {.file = &file, .n_file = 1}};
    if (gguf_text_take(&s.text, h, "fuzz", &err) == SMOE_OK &&
        gguf_to_spec(&s.spec, h, table, "fuzz", &s.arena, &err) == SMOE_OK &&
        gguf_text_ids(&s.spec, s.text.tables, "fuzz", &err) == SMOE_OK &&
        gguf_bind(&s, table, "fuzz", &err) == SMOE_OK) {
        check_experts(&s, size);
    }
    text_assets_free(&s.text);
    arena_free(&s.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    smoe_error err;
    gguf_header h;
    tensor_table table = {0};
    arena names = {0};
    check_measure(data, size);
    if (gguf_parse(&h, &table, &names, data, size, size, 0, "fuzz", &err) == SMOE_OK) {
        for (int32_t i = 0; i < table.n_item; i++) {
            check_inside(table.item[i].file, table.item[i].offset, table.item[i].bytes, size);
        }
        describe(&h, &table, size);
    } else {
        must(err.text[0] != '\0');
    }
    tensor_table_free(&table);
    arena_free(&names);
    return 0;
}
