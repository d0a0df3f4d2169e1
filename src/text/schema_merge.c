/* Schemas as data: references, the schema that demands what two demand, and whether two can hold of
 * one value. Works on JSON alone and makes no grammar. */
#include <string.h>

#include "text/schema_impl.h"

static void *out_of_memory(schema_reader *r) {
    grammar_out_of_memory(r->g, sizeof(void *));
    return NULL;
}

struct json_object *schema_own(schema_reader *r, struct json_object *value) {
    if (!value || json_object_array_add(r->made, value) != 0) {
        json_object_put(value);
        return out_of_memory(r);
    }
    return value;
}

static void put(schema_reader *r, struct json_object *object, const char *key,
                struct json_object *value) {
    if (json_object_object_add(object, key, value) != 0) {
        json_object_put(value);
        out_of_memory(r);
    }
}

/* ---- keywords */

bool schema_is_annotation(const char *key) {
    static const char *const keys[] = {"title",    "description", "default", "examples",
                                       "$comment", "$schema",     "$id",     "deprecated",
                                       "readOnly", "writeOnly",   "$defs",   "definitions"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

bool schema_is_only(struct json_object *schema, const char *key) {
    bool is_there = false;
    json_object_object_foreach(schema, name, ignored) {
        (void)ignored;
        if (strcmp(name, key) == 0) {
            is_there = true;
        } else if (!schema_is_annotation(name)) {
            return false;
        }
    }
    return is_there;
}

static bool is_among(const char *key, const char *const *keys) {
    for (; *keys; keys++) {
        if (strcmp(key, *keys) == 0) {
            return true;
        }
    }
    return false;
}

struct json_object *schema_without(schema_reader *r, struct json_object *schema,
                                   const char *const *keys) {
    struct json_object *out = schema_own(r, json_object_new_object());
    if (!out) {
        return NULL;
    }
    json_object_object_foreach(schema, key, value) {
        if (!schema_is_annotation(key) && !is_among(key, keys)) {
            put(r, out, key, json_object_get(value));
        }
    }
    return out;
}

/* ---- types */

unsigned schema_value_type(struct json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return TYPE_NULL;
    case json_type_boolean:
        return TYPE_BOOLEAN;
    case json_type_int:
        return TYPE_INTEGER;
    case json_type_double: {
        double v = json_object_get_double(value);
        return v == (double)(int64_t)(v > -9e18 && v < 9e18 ? v : 0.5) ? TYPE_INTEGER : TYPE_NUMBER;
    }
    case json_type_string:
        return TYPE_STRING;
    case json_type_array:
        return TYPE_ARRAY;
    case json_type_object:
        return TYPE_OBJECT;
    }
    return 0;
}

static unsigned type_named(struct json_object *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    const char *text =
        json_object_is_type(name, json_type_string) ? json_object_get_string(name) : "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, text) == 0) {
            return types[i].type;
        }
    }
    return 0;
}

unsigned schema_types(schema_reader *r, struct json_object *schema, const schema_place *at) {
    schema_place here = {at, "type", 0};
    struct json_object *value = schema_find(schema, "type");
    unsigned types = 0;
    if (!json_object_object_get_ex(schema, "type", NULL)) {
        return TYPE_ANY;
    }
    bool is_list = json_object_is_type(value, json_type_array);
    size_t n = is_list ? json_object_array_length(value) : 1;
    for (size_t i = 0; i < n; i++) {
        unsigned one = type_named(is_list ? json_object_array_get_idx(value, i) : value);
        if (!one) {
            schema_wrong(r, &here,
                         "must be null, boolean, integer, number, string, array or "
                         "object, or a list of these");
            return 0;
        }
        types |= one;
    }
    return types;
}

/* Types in both, where every integer is a number. */
static unsigned common_types(unsigned a, unsigned b) {
    unsigned both = a & b;
    bool a_int = a & (TYPE_INTEGER | TYPE_NUMBER);
    bool b_int = b & (TYPE_INTEGER | TYPE_NUMBER);
    return !(both & TYPE_NUMBER) && a_int && b_int ? both | TYPE_INTEGER : both;
}

static struct json_object *type_list(unsigned types) {
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{TYPE_NULL, "null"},     {TYPE_BOOLEAN, "boolean"}, {TYPE_INTEGER, "integer"},
                 {TYPE_NUMBER, "number"}, {TYPE_STRING, "string"},   {TYPE_ARRAY, "array"},
                 {TYPE_OBJECT, "object"}};
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; list && i < sizeof names / sizeof *names; i++) {
        if (types & names[i].type) {
            json_object_array_add(list, json_object_new_string(names[i].name));
        }
    }
    return list;
}

/* ---- references */

/* One step of a JSON pointer, unescaped (RFC 6901, then RFC 3986), into out; false when malformed.
 */
static bool read_step(const char **at, char *out, size_t cap) {
    size_t n = 0;
    const char *p = *at;
    while (*p && *p != '/') {
        char c = *p++;
        if (c == '%') {
            unsigned v = 0;
            for (int i = 0; i < 2; i++, p++) {
                char h = *p;
                unsigned d = h >= '0' && h <= '9'   ? (unsigned)(h - '0')
                             : h >= 'a' && h <= 'f' ? (unsigned)(h - 'a' + 10)
                             : h >= 'A' && h <= 'F' ? (unsigned)(h - 'A' + 10)
                                                    : 16;
                if (d == 16) {
                    return false;
                }
                v = v << 4 | d;
            }
            c = (char)v;
        } else if (c == '~') {
            if (*p != '0' && *p != '1') {
                return false;
            }
            c = *p++ == '0' ? '~' : '/';
        }
        if (n + 1 >= cap || c == '\0') {
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    *at = p;
    return true;
}

static bool descend(struct json_object **object, const char *step) {
    if (json_object_is_type(*object, json_type_object)) {
        return json_object_object_get_ex(*object, step, object);
    }
    if (!json_object_is_type(*object, json_type_array) || !*step ||
        strspn(step, "0123456789") != strlen(step) || strlen(step) > 9) {
        return false;
    }
    size_t index = (size_t)strtoul(step, NULL, 10);
    bool is_there = index < json_object_array_length(*object);
    *object = is_there ? json_object_array_get_idx(*object, index) : NULL;
    return is_there;
}

struct json_object *schema_resolve(schema_reader *r, struct json_object *ref,
                                   const schema_place *at) {
    schema_place here = {at, "$ref", 0};
    struct json_object *object = r->root;
    const char *text =
        json_object_is_type(ref, json_type_string) ? json_object_get_string(ref) : "";
    char step[512];
    const char *p = text + 1;
    if (text[0] != '#' || (text[1] && text[1] != '/')) {
        return schema_wrong(r, &here,
                            "\"%.100s\" is not supported; only JSON pointers into this "
                            "document are, such as #/$defs/name",
                            text);
    }
    while (*p) {
        p++;
        if (!read_step(&p, step, sizeof step) || !descend(&object, step)) {
            return schema_wrong(r, &here, "\"%.100s\" names nothing in this document", text);
        }
    }
    if (!json_object_is_type(object, json_type_object) &&
        !json_object_is_type(object, json_type_boolean)) {
        return schema_wrong(r, &here, "\"%.100s\" is no schema", text);
    }
    return object;
}

/* ---- equality */

bool schema_equal(struct json_object *a, struct json_object *b) {
    unsigned type = schema_value_type(a);
    unsigned other = schema_value_type(b);
    if (type != other) {
        return false;
    }
    if (type == TYPE_INTEGER || type == TYPE_NUMBER) {
        bool is_whole =
            json_object_is_type(a, json_type_int) && json_object_is_type(b, json_type_int);
        return is_whole ? json_object_get_int64(a) == json_object_get_int64(b)
                        : json_object_get_double(a) == json_object_get_double(b);
    }
    return json_object_equal(a, b) != 0;
}

/* ---- merging */

static struct json_object *all_of(struct json_object *a, struct json_object *b) {
    struct json_object *out = json_object_new_object();
    struct json_object *list = json_object_new_array();
    if (out && list) {
        json_object_array_add(list, json_object_get(a));
        json_object_array_add(list, json_object_get(b));
        json_object_object_add(out, "allOf", list);
        return out;
    }
    json_object_put(out);
    json_object_put(list);
    return NULL;
}

/* The values of an array that are in another one too, or with is_union both. */
static struct json_object *combine_lists(struct json_object *a, struct json_object *b,
                                         bool is_union) {
    struct json_object *out = json_object_new_array();
    bool is_good =
        out && json_object_is_type(a, json_type_array) && json_object_is_type(b, json_type_array);
    for (size_t i = 0; is_good && i < json_object_array_length(a); i++) {
        struct json_object *value = json_object_array_get_idx(a, i);
        bool is_common = is_union;
        for (size_t k = 0; !is_common && k < json_object_array_length(b); k++) {
            is_common = schema_equal(value, json_object_array_get_idx(b, k));
        }
        if (is_common) {
            json_object_array_add(out, json_object_get(value));
        }
    }
    for (size_t k = 0; is_good && is_union && k < json_object_array_length(b); k++) {
        json_object_array_add(out, json_object_get(json_object_array_get_idx(b, k)));
    }
    return out;
}

/* The properties of both; those that only one names must satisfy the other's additionalProperties
 * too. */
static void merge_properties(schema_reader *r, struct json_object *out, struct json_object *a,
                             struct json_object *b) {
    struct json_object *of[2] = {schema_find(a, "properties"), schema_find(b, "properties")};
    struct json_object *others[2] = {schema_find(b, "additionalProperties"),
                                     schema_find(a, "additionalProperties")};
    struct json_object *all = json_object_new_object();
    for (int i = 0; i < 2 && all; i++) {
        if (!json_object_is_type(of[i], json_type_object)) {
            continue;
        }
        json_object_object_foreach(of[i], name, schema) {
            struct json_object *twin = NULL;
            bool is_shared = json_object_is_type(of[1 - i], json_type_object) &&
                             json_object_object_get_ex(of[1 - i], name, &twin);
            if (is_shared && i == 1) {
                continue;
            }
            struct json_object *second = is_shared ? twin : others[i];
            put(r, all, name, second ? all_of(schema, second) : json_object_get(schema));
        }
    }
    put(r, out, "properties", all);
}

/* Of two numbers the one that demands more. */
static struct json_object *tighter(struct json_object *a, struct json_object *b, bool is_lower) {
    double x = json_object_get_double(a);
    double y = json_object_get_double(b);
    return (x > y) == is_lower ? a : b;
}

static bool is_false(struct json_object *schema) {
    return json_object_is_type(schema, json_type_boolean) && !json_object_get_boolean(schema);
}

/* One keyword that both schemas have. */
static void merge_keyword(schema_reader *r, struct json_object *out, const char *key,
                          struct json_object *a, struct json_object *b, const schema_place *at) {
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        NULL};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        NULL};
    static const char *const schemas[] = {"items", "additionalProperties", NULL};
    if (is_among(key, lower) || is_among(key, upper)) {
        put(r, out, key, json_object_get(tighter(a, b, is_among(key, lower))));
    } else if (is_among(key, schemas)) {
        put(r, out, key,
            is_false(a) || is_false(b) ? json_object_new_boolean(false) : all_of(a, b));
    } else if (strcmp(key, "required") == 0 || strcmp(key, "enum") == 0) {
        put(r, out, key, combine_lists(a, b, key[0] == 'r'));
    } else if (schema_equal(a, b)) {
        put(r, out, key, json_object_get(a));
    } else if (strcmp(key, "const") == 0) {
        put(r, out, "enum", json_object_new_array()); /* nothing is equal to both */
    } else {
        schema_place here = {at, key, 0};
        schema_wrong(r, &here, "two different values of this keyword cannot be merged");
    }
}

static void merge_types(schema_reader *r, struct json_object *out, struct json_object *a,
                        struct json_object *b, const schema_place *at) {
    bool is_there =
        json_object_object_get_ex(a, "type", NULL) || json_object_object_get_ex(b, "type", NULL);
    unsigned first = schema_types(r, a, at);
    unsigned second = schema_types(r, b, at);
    if (is_there && first && second) {
        put(r, out, "type", type_list(common_types(first, second)));
    }
}

/* patternProperties cannot be merged with names that they might match. */
static bool has_clashing_patterns(struct json_object *a, struct json_object *b) {
    return json_object_object_get_ex(a, "patternProperties", NULL) &&
           (json_object_object_get_ex(b, "properties", NULL) ||
            json_object_object_get_ex(b, "additionalProperties", NULL));
}

/* Both flat. */
static struct json_object *merge_flat(schema_reader *r, struct json_object *a,
                                      struct json_object *b, const schema_place *at) {
    struct json_object *out = schema_own(r, json_object_new_object());
    struct json_object *from[2] = {a, b};
    if (!out) {
        return NULL;
    }
    if (has_clashing_patterns(a, b) || has_clashing_patterns(b, a)) {
        schema_place here = {at, "patternProperties", 0};
        return schema_wrong(r, &here, "cannot be merged with another schema of properties");
    }
    merge_types(r, out, a, b, at);
    if (json_object_object_get_ex(a, "properties", NULL) ||
        json_object_object_get_ex(b, "properties", NULL)) {
        merge_properties(r, out, a, b);
    }
    for (int i = 0; i < 2; i++) {
        json_object_object_foreach(from[i], key, value) {
            struct json_object *other = NULL;
            bool is_shared = json_object_object_get_ex(from[1 - i], key, &other);
            bool is_done = strcmp(key, "type") == 0 || strcmp(key, "properties") == 0 ||
                           schema_is_annotation(key) || (is_shared && i == 1);
            if (is_done || grammar_status(r->g) != SMOE_OK) {
                continue;
            }
            if (is_shared) {
                merge_keyword(r, out, key, value, other, at);
            } else if (!json_object_object_get_ex(out, key, NULL)) {
                put(r, out, key, json_object_get(value));
            }
        }
    }
    return grammar_status(r->g) == SMOE_OK ? out : NULL;
}

/* A boolean schema as an object. */
static struct json_object *as_object(schema_reader *r, struct json_object *schema,
                                     const schema_place *at) {
    if (json_object_is_type(schema, json_type_object)) {
        return schema;
    }
    if (!json_object_is_type(schema, json_type_boolean)) {
        return schema_wrong(r, at, "must be a schema: an object, true or false");
    }
    struct json_object *out = schema_own(r, json_object_new_object());
    if (out && !json_object_get_boolean(schema)) {
        put(r, out, "enum", json_object_new_array());
    }
    return out;
}

struct json_object *schema_flatten(schema_reader *r, struct json_object *schema,
                                   const schema_place *at) {
    schema_place here = {at, "allOf", 0};
    schema = as_object(r, schema, at);
    if (!schema) {
        return NULL;
    }
    struct json_object *ref = schema_find(schema, "$ref");
    struct json_object *list = schema_find(schema, "allOf");
    if (!ref && !json_object_object_get_ex(schema, "allOf", NULL)) {
        return schema;
    }
    if (r->depth >= SCHEMA_DEPTH || r->n_visit >= SCHEMA_VISITS) {
        return schema_wrong(r, at,
                            "too many schemas within schemas; recursion is supported "
                            "through $ref alone, not through allOf");
    }
    r->depth++;
    r->n_visit++;
    struct json_object *out =
        schema_without(r, schema, (const char *const[]){"$ref", "allOf", NULL});
    if (out && ref) {
        struct json_object *target = schema_resolve(r, ref, at);
        out = target ? schema_merge(r, out, target, at) : NULL;
    }
    if (out && list && !json_object_is_type(list, json_type_array)) {
        out = schema_wrong(r, &here, "must be an array of schemas");
    }
    size_t n = out && list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n && out; i++) {
        schema_place place = {&here, NULL, i};
        out = schema_merge(r, out, json_object_array_get_idx(list, i), &place);
    }
    r->depth--;
    return out;
}

struct json_object *schema_merge(schema_reader *r, struct json_object *a, struct json_object *b,
                                 const schema_place *at) {
    struct json_object *x = schema_flatten(r, a, at);
    struct json_object *y = x ? schema_flatten(r, b, at) : NULL;
    return y ? merge_flat(r, x, y, at) : NULL;
}

/* ---- whether two schemas exclude each other */

/* The values that enum or const list; NULL when there is neither. */
static struct json_object *values_of(schema_reader *r, struct json_object *schema) {
    struct json_object *only = NULL;
    if (json_object_object_get_ex(schema, "const", &only)) {
        struct json_object *list = schema_own(r, json_object_new_array());
        if (list) {
            json_object_array_add(list, json_object_get(only));
        }
        return list;
    }
    struct json_object *list = schema_find(schema, "enum");
    return json_object_is_type(list, json_type_array) ? list : NULL;
}

static unsigned types_of_values(struct json_object *list) {
    unsigned types = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        types |= schema_value_type(json_object_array_get_idx(list, i));
    }
    return types;
}

static bool requires(struct json_object *schema, const char *name) {
    struct json_object *list = schema_find(schema, "required");
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        if (json_object_is_type(one, json_type_string) &&
            strcmp(json_object_get_string(one), name) == 0) {
            return true;
        }
    }
    return false;
}

static bool forbids(struct json_object *schema, const char *name) {
    struct json_object *properties = schema_find(schema, "properties");
    struct json_object *own = NULL;
    if (json_object_is_type(properties, json_type_object) &&
        json_object_object_get_ex(properties, name, &own)) {
        return is_false(own);
    }
    return is_false(schema_find(schema, "additionalProperties")) &&
           !schema_find(schema, "patternProperties");
}

/* Whether a property that a requires tells objects of the two apart. */
static bool is_told_apart(schema_reader *r, struct json_object *a, struct json_object *b,
                          const schema_place *at, int depth) {
    struct json_object *list = schema_find(a, "required");
    struct json_object *of_a = schema_find(a, "properties");
    struct json_object *of_b = schema_find(b, "properties");
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        const char *name =
            json_object_is_type(one, json_type_string) ? json_object_get_string(one) : "";
        struct json_object *x = NULL;
        struct json_object *y = NULL;
        if (forbids(b, name)) {
            return true;
        }
        if (requires(b, name) && json_object_is_type(of_a, json_type_object) &&
            json_object_is_type(of_b, json_type_object) &&
            json_object_object_get_ex(of_a, name, &x) &&
            json_object_object_get_ex(of_b, name, &y) &&
            schema_is_disjoint(r, x, y, at, depth + 1)) {
            return true;
        }
    }
    return false;
}

bool schema_is_disjoint(schema_reader *r, struct json_object *a, struct json_object *b,
                        const schema_place *at, int depth) {
    a = depth < 8 ? schema_flatten(r, a, at) : NULL;
    b = a ? schema_flatten(r, b, at) : NULL;
    if (!b) {
        return false;
    }
    struct json_object *x = values_of(r, a);
    struct json_object *y = values_of(r, b);
    unsigned of_a = schema_types(r, a, at);
    unsigned of_b = schema_types(r, b, at);
    of_a = x ? common_types(of_a, types_of_values(x)) : of_a;
    of_b = y ? common_types(of_b, types_of_values(y)) : of_b;
    unsigned common = common_types(of_a, of_b);
    if (common == 0) {
        return true;
    }
    if (x && y) {
        struct json_object *both = schema_own(r, combine_lists(x, y, false));
        return both && json_object_array_length(both) == 0;
    }
    return common == TYPE_OBJECT &&
           (is_told_apart(r, a, b, at, depth) || is_told_apart(r, b, a, at, depth));
}
