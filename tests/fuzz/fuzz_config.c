/* Fuzz target: the input is a config.json. A spec that comes out must be whole, and the same after
 * a way through its JSON form. */
#include "base/json.h"
#include "model/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const spec *s, arena *a) {
    smoe_error err;
    spec back;
    struct json_object *json = NULL;
    if (spec_to_json(s, &json, &err) != SMOE_OK ||
        spec_from_json(&back, json, "fuzz", a, &err) != SMOE_OK || back.n_layer != s->n_layer) {
        __builtin_trap();
    }
    json_object_put(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    smoe_error err;
    struct json_object *root = NULL;
    const family *f;
    spec s;
    arena a = {0};
    if (json_parse(&root, (const char *)data, size, "fuzz", JSON_UNIQUE_KEYS, &err) == SMOE_OK &&
        config_to_spec(&s, &f, root, "fuzz", NULL, NULL, &a, &err) == SMOE_OK) {
        check_round_trip(&s, &a);
    }
    json_object_put(root);
    arena_free(&a);
    return 0;
}
