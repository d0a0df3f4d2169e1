/* The tools of a request, as far as reading calls needs them: names, and which kinds of JSON a
 * parameter's schema allows. See output_impl.h. */
#include <string.h>

#include "base/json.h"
#include "text/output_impl.h"

enum { SCHEMA_DEPTH = 16 };

static struct json_object *member(struct json_object *o, const char *key) {
    return json_object_is_type(o, json_type_object) ? json_find(o, key) : NULL;
}

/* A tool is {"type": "function", "function": {…}} or what stands inside. */
static struct json_object *function_of(struct json_object *tool) {
    struct json_object *inner = member(tool, "function");
    return json_object_is_type(inner, json_type_object) ? inner : tool;
}

int output_read_tools(smoe_output_parser *p, const char *json, smoe_error *err) {
    struct json_object *root = NULL;
    if (!json) {
        return SMOE_OK;
    }
    int rc = json_parse(&root, json, strlen(json), "tools", 0, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    p->tools = root;
    if (!json_object_is_type(root, json_type_array)) {
        return err_set(err, SMOE_ERR_FORMAT, "tools: must be an array");
    }
    for (size_t i = 0; i < json_object_array_length(root); i++) {
        struct json_object *f = function_of(json_object_array_get_idx(root, i));
        if (!json_object_is_type(member(f, "name"), json_type_string)) {
            return err_set(err, SMOE_ERR_FORMAT, "tools: element %zu has no name", i);
        }
    }
    return SMOE_OK;
}

static struct json_object *find_tool(const smoe_output_parser *p, const char *name) {
    size_t n = p->tools ? json_object_array_length(p->tools) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *f = function_of(json_object_array_get_idx(p->tools, i));
        if (strcmp(json_object_get_string(member(f, "name")), name) == 0) {
            return f;
        }
    }
    return NULL;
}

bool output_has_tool(const smoe_output_parser *p, const char *name) {
    return find_tool(p, name) != NULL;
}

static unsigned kind_of_name(struct json_object *type) {
    static const struct {
        const char *name;
        unsigned kind;
    } rows[] = {{"null", JSON_KIND_NULL},       {"boolean", JSON_KIND_BOOLEAN},
                {"integer", JSON_KIND_INTEGER}, {"number", JSON_KIND_NUMBER},
                {"string", JSON_KIND_STRING},   {"array", JSON_KIND_ARRAY},
                {"object", JSON_KIND_OBJECT}};
    const char *name =
        json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].kind;
        }
    }
    return JSON_KIND_ANY;
}

static unsigned kind_of_value(struct json_object *v) {
    switch (json_object_get_type(v)) {
    case json_type_null:
        return JSON_KIND_NULL;
    case json_type_boolean:
        return JSON_KIND_BOOLEAN;
    case json_type_int:
        return JSON_KIND_INTEGER;
    case json_type_double:
        return JSON_KIND_NUMBER;
    case json_type_string:
        return JSON_KIND_STRING;
    case json_type_array:
        return JSON_KIND_ARRAY;
    default:
        return JSON_KIND_OBJECT;
    }
}

static unsigned kinds_of(struct json_object *schema, int depth);

/* What any of an array allows: type names, values, or schemas. */
static unsigned any_of(struct json_object *array, const char *key, int depth) {
    unsigned kinds = 0;
    size_t n = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *v = json_object_array_get_idx(array, i);
        kinds |= strcmp(key, "enum") == 0   ? kind_of_value(v)
                 : strcmp(key, "type") == 0 ? kind_of_name(v)
                                            : kinds_of(v, depth + 1);
    }
    return kinds ? kinds : JSON_KIND_ANY;
}

static unsigned all_of(struct json_object *array, int depth) {
    unsigned kinds = JSON_KIND_ANY;
    size_t n = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    for (size_t i = 0; i < n; i++) {
        kinds &= kinds_of(json_object_array_get_idx(array, i), depth + 1);
    }
    return kinds ? kinds : JSON_KIND_ANY;
}

/* A schema that says nothing here, or what is not looked at ($ref), allows all. */
static unsigned kinds_of(struct json_object *schema, int depth) {
    static const char *const unions[] = {"anyOf", "oneOf", "enum"};
    unsigned kinds = JSON_KIND_ANY;
    if (!json_object_is_type(schema, json_type_object) || depth > SCHEMA_DEPTH) {
        return kinds;
    }
    struct json_object *type = member(schema, "type");
    if (json_object_is_type(type, json_type_string)) {
        kinds = kind_of_name(type);
    } else if (type) {
        kinds = any_of(type, "type", depth);
    }
    for (size_t i = 0; i < sizeof unions / sizeof unions[0]; i++) {
        struct json_object *options = member(schema, unions[i]);
        unsigned some = options ? any_of(options, unions[i], depth) : JSON_KIND_ANY;
        kinds = kinds & some ? kinds & some : kinds;
    }
    struct json_object *all = member(schema, "allOf");
    unsigned some = all ? all_of(all, depth) : JSON_KIND_ANY;
    kinds = kinds & some ? kinds & some : kinds;
    if (json_object_get_boolean(member(schema, "nullable"))) {
        kinds |= JSON_KIND_NULL;
    }
    return kinds;
}

unsigned output_parameter_kinds(const smoe_output_parser *p, const char *parameter) {
    struct json_object *tool = find_tool(p, p->name.data);
    struct json_object *properties = member(member(tool, "parameters"), "properties");
    return kinds_of(member(properties, parameter), 0);
}
