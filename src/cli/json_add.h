/* Members of the JSON objects that commands print. Header-only. */
#ifndef SMOE_CLI_JSON_ADD_H
#define SMOE_CLI_JSON_ADD_H

#include <json-c/json.h>
#include <stdint.h>

static inline void json_add_count(struct json_object *o, const char *key, uint64_t v) {
    json_object_object_add(o, key, json_object_new_uint64(v));
}

static inline void json_add_number(struct json_object *o, const char *key, double v) {
    json_object_object_add(o, key, json_object_new_double(v));
}

#endif
