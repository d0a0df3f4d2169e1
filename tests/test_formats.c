/* Element types, the tensor table, safetensors both ways, and JSON corners found with them. */
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/hf_dir.h"
#include "formats/safetensors.h"

#include "test.h"

TEST(dtype_tables_are_inverse) {
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        const dtype_info *d = dtype_get((dtype)t);
        CHECK(d->name && d->block_elems && d->block_bytes);
        CHECK_INT(dtype_by_name(d->name), t);
        if (d->safetensors_name) {
            CHECK_INT(dtype_by_safetensors_name(d->safetensors_name), t);
        }
    }
    CHECK_INT(dtype_by_name("nosuch"), DT_NONE);
    CHECK_INT(dtype_by_safetensors_name("bf16"), DT_NONE);
    CHECK_TEXT(dtype_get((dtype)999)->name, "none");
}

TEST(dtype_rows_end_with_whole_blocks) {
    CHECK_INT(dtype_row_bytes(DT_BF16, 33), 66);
    CHECK_INT(dtype_row_bytes(DT_Q8, 32), 34);
    CHECK_INT(dtype_row_bytes(DT_Q8, 33), 68);
    CHECK_INT(dtype_row_bytes(DT_Q2, 1), 21);
    CHECK_INT(dtype_row_bytes(DT_Q4, (1ull << 40) - 32), ((1ull << 35) - 1) * 18);
}

TEST(tensor_table_finds_exact_names_only) {
    enum { N = 5000 };
    static char names[N][16];
    smoe_error err;
    tensor_table table = {0};
    CHECK(tensor_table_find(&table, "") == NULL);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i * 7);
        tensor t = {.name = names[i], .offset = (uint64_t)i};
        CHECK_OK(tensor_table_add(&table, &t, "f", &err));
    }
    for (int i = 0; i < N; i++) {
        const tensor *t = tensor_table_find(&table, names[i]);
        CHECK(t && t->offset == (uint64_t)i && t == &table.item[i]);
    }
    CHECK(tensor_table_find(&table, "t") == NULL);
    CHECK(tensor_table_find(&table, "t77") == NULL || 77 % 7 == 0);
    CHECK(tensor_table_find(&table, "t1") == NULL);
    CHECK_ERR(tensor_table_add(&table, &(tensor){.name = "t7"}, "f", &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "f: duplicate name t7");
    tensor_table_free(&table);
}

/* Writes the tensors of a head and their data, counting bytes from 0, to name. */
static const char *write_file(const char *name, tensor *item, int32_t n,
                              const safetensors_meta *meta, int32_t n_meta) {
    smoe_error err;
    char *head;
    size_t head_bytes;
    CHECK_OK(safetensors_head(item, n, meta, n_meta, &head, &head_bytes, &err));
    uint64_t bytes = n ? item[n - 1].offset + item[n - 1].bytes : head_bytes;
    char *file = malloc(bytes);
    CHECK(file && head_bytes <= bytes);
    memcpy(file, head, head_bytes);
    for (size_t i = head_bytes; i < bytes; i++) {
        file[i] = (char)(i - head_bytes);
    }
    test_write_file(test_path(name), file, bytes);
    free(file);
    free(head);
    return test_path(name);
}

TEST(safetensors_written_is_read_back) {
    smoe_error err;
    tensor item[] = {
        {.name = "logits", .type = DT_F32, .rank = 2, .shape = {3, 5}},
        {.name = "a/\"quoted\"\n\xc3\xa9", .type = DT_BF16, .rank = 1, .shape = {7}},
        {.name = "scalar", .type = DT_I64, .rank = 0},
        {.name = "none", .type = DT_F16, .rank = 2, .shape = {0, 4}},
        {.name = "bytes", .type = DT_U8, .rank = 3, .shape = {2, 1, 9}},
    };
    enum { N = sizeof item / sizeof *item };
    safetensors_meta meta[] = {{"made_by", "a test"}, {"odd", "\"\\/"}};
    const char *path = write_file("w.safetensors", item, N, meta, 2);
    CHECK_INT(item[0].offset % 8, 0);
    CHECK_INT(item[1].offset, item[0].offset + 60);
    CHECK_INT(item[4].bytes, 18);

    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    struct json_object *metadata;
    CHECK_OK(safetensors_open(&table, &names, &files, path, &metadata, &err));
    CHECK_INT(table.n_item, N);
    for (int i = 0; i < N; i++) {
        const tensor *t = tensor_table_find(&table, item[i].name);
        CHECK(t);
        CHECK_INT(t->type, item[i].type);
        CHECK_INT(t->rank, item[i].rank);
        CHECK_INT(t->offset, item[i].offset);
        CHECK_INT(t->bytes, item[i].bytes);
        for (int k = 0; k < LIMIT_TENSOR_RANK; k++) {
            CHECK_INT(t->shape[k], k < t->rank ? item[i].shape[k] : 1);
        }
    }
    CHECK_TEXT(json_object_get_string(json_find(metadata, "odd")), "\"\\/");
    json_object_put(metadata);
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
}

TEST(safetensors_head_refuses_what_cannot_be_written) {
    smoe_error err;
    char *head;
    size_t n;
    tensor block = {.name = "q", .type = DT_Q8, .rank = 1, .shape = {32}};
    CHECK_ERR(safetensors_head(&block, 1, NULL, 0, &head, &n, &err), SMOE_ERR_ARGUMENT);
    tensor big = {.name = "b", .type = DT_F32, .rank = 2, .shape = {1ll << 40, 1ll << 40}};
    CHECK_ERR(safetensors_head(&big, 1, NULL, 0, &head, &n, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "overflows");
    tensor twice[] = {{.name = "t", .type = DT_U8}, {.name = "t", .type = DT_U8}};
    CHECK_ERR(safetensors_head(twice, 2, NULL, 0, &head, &n, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "duplicate name t");
}

static int parse(const char *header, uint64_t data_bytes, tensor_table *table, smoe_error *err) {
    arena names = {0};
    size_t n = strlen(header);
    char *exact = test_guarded(n);
    memcpy(exact, header, n);
    int rc = safetensors_parse(table, &names, exact, n, 8 + n + data_bytes, 0, "f", NULL, err);
    /* the names die here; only counts are looked at */
    arena_free(&names);
    return rc;
}

TEST(safetensors_data_is_covered_once) {
    smoe_error err;
    tensor_table t = {0};
#define U8_TENSOR(name, from, to, n)                                                               \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" from "," to "]}"
    CHECK_OK(parse("{" U8_TENSOR("b", "4", "6", "2") "," U8_TENSOR("a", "0", "4", "4") "}", 6, &t,
                   &err));
    CHECK_INT(t.n_item, 2);
    CHECK_INT(t.item[0].bytes, 4);
    tensor_table_free(&t);
    CHECK_ERR(parse("{" U8_TENSOR("a", "1", "3", "2") "}", 3, &t, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "unused bytes");
    CHECK_ERR(
        parse("{" U8_TENSOR("a", "0", "3", "3") "," U8_TENSOR("b", "2", "4", "2") "}", 4, &t, &err),
        SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "overlap");
    CHECK_ERR(parse("{" U8_TENSOR("a", "0", "3", "3") "}", 4, &t, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "1 bytes behind");
    CHECK_ERR(parse("{" U8_TENSOR("a", "0", "0", "0,9223372036854775806,9") "}", 0, &t, &err),
              SMOE_OK);
    tensor_table_free(&t);
    CHECK_ERR(parse("{" U8_TENSOR("a", "0", "1", "1,1,1,1,1,1,1,1,1") "}", 1, &t, &err),
              SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "9 dimensions");
}

TEST(safetensors_length_never_wraps) {
    smoe_error err;
    size_t n = 77;
    uint8_t length[8];
    memset(length, 0xff, sizeof length);
    CHECK_ERR(safetensors_header_length(length, UINT64_MAX, "f", &n, &err), SMOE_ERR_FORMAT);
    length[0] = 0xf7; /* exactly to the end of a file of 2^64 - 1 bytes */
    CHECK_ERR(safetensors_header_length(length, UINT64_MAX, "f", &n, &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "more than the format's limit");
    CHECK_ERR(safetensors_header_length(length, 7, "f", &n, &err), SMOE_ERR_FORMAT);
    CHECK_INT(n, 77);
}

TEST(shards_are_opened_once) {
    smoe_error err;
    tensor a[] = {{.name = "a", .type = DT_U8, .rank = 1, .shape = {3}},
                  {.name = "b", .type = DT_U8, .rank = 1, .shape = {3}}};
    tensor c[] = {{.name = "c", .type = DT_U8, .rank = 1, .shape = {3}}};
    static const char index[] = "{\"weight_map\":{\"b\":\"2.safetensors\",\"c\":\"1.safetensors\","
                                "\"a\":\"2.safetensors\"}}";
    write_file("2.safetensors", a, 2, NULL, 0);
    write_file("1.safetensors", c, 1, NULL, 0);
    test_write_file(test_path(HF_INDEX_NAME), index, sizeof index - 1);
    tensor_table table = {0};
    arena names = {0};
    file_set files = {0};
    CHECK_OK(hf_dir_open_weights(&table, &names, &files, test_dir(), &err));
    CHECK_INT(files.n_file, 2);
    CHECK_INT(table.n_item, 3);
    CHECK_INT(tensor_table_find(&table, "c")->file, 0);
    CHECK_INT(tensor_table_find(&table, "b")->file, 1);
    CHECK_TEXT(files.file[1].path, test_path("2.safetensors"));
    tensor_table_free(&table);
    arena_free(&names);
    file_set_close(&files);
}

TEST(json_numbers_past_64_bits_are_out_of_range) {
    smoe_error err;
    struct json_object *root = NULL;
    static const char text[] = "{\"a\": 36893488147419103248, \"b\": -36893488147419103248}";
    int64_t v = 5;
    CHECK_OK(json_parse(&root, text, sizeof text - 1, "c.json", 0, &err));
    json_at at = {root, "c.json", ""};
    CHECK_ERR(json_opt_int(&at, "a", 0, INT64_MAX, &v, &err), SMOE_ERR_FORMAT);
    CHECK_TEXT(err.text, "c.json: a is out of range");
    CHECK_ERR(json_opt_int(&at, "b", INT64_MIN, 0, &v, &err), SMOE_ERR_FORMAT);
    CHECK_INT(v, 5);
    json_object_put(root);
}

TEST(json_unique_keys_looks_at_objects_only) {
    smoe_error err;
    struct json_object *root = NULL;
    static const char text[] = "[{\"a\": 1}, {\"a\": 2}]";
    CHECK_OK(json_parse(&root, text, sizeof text - 1, "c.json", JSON_UNIQUE_KEYS, &err));
    json_object_put(root);
}
