/* Schemas to rules: dispatch over keywords, objects, arrays, enumerations, references.
 *
 * White space between parts is what people and models write: none, a space, or a new line with an
 * indent, whose length is bounded so that no text can stay in it.
 */
#include "text/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/schema_impl.h"

enum { INDENT_SPACES = 32, INDENT_TABS = 8 };

/* ---- messages */

static void write_place(const schema_place *at, byte_buf *out) {
    if (!at) {
        buf_append(out, "#", 1, NULL);
        return;
    }
    write_place(at->up, out);
    if (at->key) {
        buf_printf(out, NULL, "/%s", at->key);
    } else {
        buf_printf(out, NULL, "/%zu", at->index);
    }
}

void *schema_wrong(schema_reader *r, const schema_place *at, const char *format, ...) {
    if (r->g->status == SMOE_OK) {
        byte_buf place = {.max_bytes = 300};
        char why[300];
        va_list args;
        va_start(args, format);
        vsnprintf(why, sizeof why, format, args);
        va_end(args);
        write_place(at, &place);
        r->g->status = err_set(r->g->err, SMOE_ERR_UNSUPPORTED, "schema: %s: %s",
                               place.data ? place.data : "#", why);
        buf_free(&place);
    }
    return NULL;
}

/* ---- small parts */

const grammar_node *schema_rule(schema_reader *r, const char *name, const grammar_node *body) {
    uint32_t rule = grammar_rule_new(r->g, name);
    grammar_define(r->g, rule, body);
    return grammar_call(r->g, rule);
}

bool schema_count(schema_reader *r, struct json_object *schema, const schema_place *at,
                  const char *key, uint32_t *out) {
    struct json_object *value = schema_find(schema, key);
    schema_place here = {at, key, 0};
    if (!json_object_object_get_ex(schema, key, NULL)) {
        return true;
    }
    double v = json_object_get_double(value);
    bool is_number =
        json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);
    if (!is_number || !(v >= 0) || v != (double)(uint64_t)(v < 1e18 ? v : 1e18)) {
        schema_wrong(r, &here, "must be a whole number from 0");
        return false;
    }
    *out = v < (double)UINT32_MAX ? (uint32_t)v : UINT32_MAX - 1;
    return true;
}

static const grammar_node *space(schema_reader *r) {
    grammar *g = r->g;
    if (r->space == UINT32_MAX) {
        r->space = grammar_rule_new(g, "white space");
        const grammar_node *spaces = grammar_repeat(g, grammar_text(g, " "), 0, INDENT_SPACES);
        const grammar_node *tabs = grammar_repeat(g, grammar_text(g, "\t"), 1, INDENT_TABS);
        const grammar_node *line =
            GRAMMAR_SEQ_OF(g, grammar_text(g, "\n"), GRAMMAR_ALT_OF(g, spaces, tabs));
        grammar_define(g, r->space,
                       GRAMMAR_ALT_OF(g, grammar_text(g, ""), grammar_text(g, " "), line));
    }
    return grammar_call(g, r->space);
}

const grammar_node *schema_any_string(schema_reader *r) {
    grammar *g = r->g;
    if (r->string == UINT32_MAX) {
        r->string = grammar_rule_new(g, "string");
        grammar_define(g, r->string,
                       GRAMMAR_SEQ_OF(g, grammar_text(g, "\""),
                                      grammar_repeat(g, schema_char(r, true), 0, GRAMMAR_MANY),
                                      grammar_text(g, "\"")));
    }
    return grammar_call(g, r->string);
}

static const grammar_node *never(schema_reader *r) {
    return grammar_class(r->g, &(cp_set){0});
}

/* ---- objects and arrays as texts */

/* Behind white space: a name, written or as a node inside quotes, and its value. */
static const grammar_node *member(schema_reader *r, const grammar_node *name,
                                  const grammar_node *value) {
    grammar *g = r->g;
    return GRAMMAR_SEQ_OF(g, space(r), grammar_text(g, "\""), name, grammar_text(g, "\":"),
                          grammar_optional(g, grammar_text(g, " ")), value);
}

static const grammar_node *braces(schema_reader *r, const char *open, const grammar_node *inside,
                                  const char *close) {
    grammar *g = r->g;
    return GRAMMAR_SEQ_OF(g, grammar_text(g, open), inside, space(r), grammar_text(g, close));
}

static const grammar_node *element(schema_reader *r, const grammar_node *value) {
    return GRAMMAR_SEQ_OF(r->g, space(r), value);
}

/* Any JSON value. */
static const grammar_node *any_value(schema_reader *r) {
    grammar *g = r->g;
    if (r->value == UINT32_MAX) {
        r->value = grammar_rule_new(g, "any value");
        const grammar_node *value = grammar_call(g, r->value);
        const grammar_node *name = grammar_repeat(g, schema_char(r, true), 0, GRAMMAR_MANY);
        const grammar_node *comma = grammar_text(g, ",");
        const grammar_node *members =
            grammar_list(g, 0, NULL, NULL, member(r, name, value), true, comma);
        const grammar_node *elements =
            grammar_list(g, 0, NULL, NULL, element(r, value), true, comma);
        struct json_object *none = schema_own(r, json_object_new_object());
        grammar_define(g, r->value,
                       GRAMMAR_ALT_OF(g, schema_rule(r, "object", braces(r, "{", members, "}")),
                                      schema_rule(r, "array", braces(r, "[", elements, "]")),
                                      schema_any_string(r), schema_number(r, none, NULL, false),
                                      grammar_text(g, "true"), grammar_text(g, "false"),
                                      grammar_text(g, "null")));
    }
    return grammar_call(g, r->value);
}

static const grammar_node *read_schema(schema_reader *r, struct json_object *schema,
                                       const schema_place *at);

/* ---- objects */

typedef struct object_parts {
    const grammar_node **item;
    bool *is_required;
    size_t n;
    struct json_object *names; /* an object with a key for each */
} object_parts;

static bool is_listed(struct json_object *list, const char *name) {
    size_t n = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), name) == 0) {
            return true;
        }
    }
    return false;
}

/* The `required` list; false after an error. */
static bool read_required(schema_reader *r, struct json_object *schema, const schema_place *at,
                          struct json_object **out) {
    schema_place here = {at, "required", 0};
    *out = schema_find(schema, "required");
    if (!json_object_object_get_ex(schema, "required", NULL)) {
        return true;
    }
    bool is_good = json_object_is_type(*out, json_type_array);
    for (size_t i = 0; is_good && i < json_object_array_length(*out); i++) {
        is_good = json_object_is_type(json_object_array_get_idx(*out, i), json_type_string);
    }
    return is_good || schema_wrong(r, &here, "must be a list of names");
}

static bool read_properties(schema_reader *r, struct json_object *properties,
                            struct json_object *required, const schema_place *at,
                            object_parts *out) {
    schema_place here = {at, "properties", 0};
    if (properties && !json_object_is_type(properties, json_type_object)) {
        return schema_wrong(r, &here, "must be an object");
    }
    size_t n = properties ? (size_t)json_object_object_length(properties) : 0;
    n += required ? json_object_array_length(required) : 0;
    out->item = mem_array(n, sizeof *out->item);
    out->is_required = mem_array(n, sizeof *out->is_required);
    if (!out->item || !out->is_required) {
        grammar_out_of_memory(r->g, n * sizeof *out->item);
        return false;
    }
    if (!properties) {
        return true;
    }
    json_object_object_foreach(properties, name, schema) {
        schema_place place = {&here, name, 0};
        const grammar_node *value = read_schema(r, schema, &place);
        out->item[out->n] = member(r, schema_literal(r, name, strlen(name)), value);
        out->is_required[out->n++] = is_listed(required, name);
        json_object_object_add(out->names, name, NULL);
    }
    return grammar_status(r->g) == SMOE_OK;
}

/* ---- names of additional members: plain characters, and none of the names that are taken. Those
 * are spelled out as a tree, which is left at the first difference. */

typedef struct name_list {
    const char **name; /* sorted */
    size_t n;
} name_list;

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Characters that go on with none of these bytes. A byte above 0x7f stands for all characters
 * there, which keeps characters whole. */
static const grammar_node *any_but(schema_reader *r, const bool *taken) {
    cp_set set = {0};
    bool has_high = false;
    for (uint32_t b = 0; b < 256; b++) {
        if (b >= 0x80) {
            has_high |= taken[b];
        } else if (b >= 0x20 && b != '"' && b != '\\' && b != 0x7f && !taken[b]) {
            cp_set_add(&set, b, b);
        }
    }
    if (!has_high) {
        cp_set_add(&set, 0x80, UCD_LAST);
    }
    const grammar_node *node = grammar_class(r->g, &set);
    cp_set_free(&set);
    return node;
}

/* What may follow the first depth bytes, which the names of the list share. */
static const grammar_node *names_after(schema_reader *r, name_list list, size_t depth) {
    grammar *g = r->g;
    static const bool none[256];
    const grammar_node *node[130];
    size_t n = 0;
    bool taken[256] = {false};
    bool is_name = false;
    for (size_t i = 0; i < list.n;) {
        uint8_t byte = (uint8_t)list.name[i][depth];
        size_t same = 1;
        while (i + same < list.n && (uint8_t)list.name[i + same][depth] == byte) {
            same++;
        }
        taken[byte] = true;
        is_name |= byte == 0;
        if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
            char text[1] = {(char)byte};
            name_list longer = {list.name + i, same};
            node[n++] =
                GRAMMAR_SEQ_OF(g, grammar_bytes(g, text, 1), names_after(r, longer, depth + 1));
        }
        i += same;
    }
    if (!is_name) {
        node[n++] = grammar_text(g, "");
    }
    node[n++] =
        GRAMMAR_SEQ_OF(g, any_but(r, taken), grammar_repeat(g, any_but(r, none), 0, GRAMMAR_MANY));
    return grammar_alt(g, n, node);
}

static const grammar_node *other_names(schema_reader *r, struct json_object *taken,
                                       const schema_place *at) {
    name_list list = {.n = (size_t)json_object_object_length(taken)};
    list.name = mem_array(list.n, sizeof *list.name);
    if (!list.name) {
        grammar_out_of_memory(r->g, list.n * sizeof *list.name);
        return NULL;
    }
    size_t n = 0;
    bool is_long = false;
    json_object_object_foreach(taken, name, ignored) {
        (void)ignored;
        is_long |= strlen(name) > SCHEMA_NAME_BYTES;
        list.name[n++] = name;
    }
    qsort((void *)list.name, n, sizeof *list.name, compare_names);
    const grammar_node *node =
        is_long ? schema_wrong(r, at,
                               "names of properties longer than %d bytes are not supported "
                               "beside additional ones",
                               SCHEMA_NAME_BYTES)
                : names_after(r, list, 0);
    free((void *)list.name);
    return node;
}

/* The single pattern of patternProperties; false after an error. */
static bool read_pattern_member(schema_reader *r, struct json_object *schema,
                                const schema_place *at, const grammar_node **more) {
    struct json_object *patterns = schema_find(schema, "patternProperties");
    struct json_object *others = schema_find(schema, "additionalProperties");
    schema_place here = {at, "patternProperties", 0};
    if (!json_object_is_type(patterns, json_type_object)) {
        return schema_wrong(r, &here, "must be an object");
    }
    bool is_closed =
        json_object_is_type(others, json_type_boolean) && !json_object_get_boolean(others);
    if (json_object_object_length(patterns) != 1 || !is_closed ||
        schema_find(schema, "properties")) {
        return schema_wrong(r, &here,
                            "supported only with one pattern, without properties and with "
                            "additionalProperties: false");
    }
    json_object_object_foreach(patterns, pattern, value) {
        schema_place place = {&here, pattern, 0};
        *more = member(r, schema_regex(r, pattern, strlen(pattern), &place),
                       read_schema(r, value, &place));
    }
    return grammar_status(r->g) == SMOE_OK;
}

/* What may follow the properties: *has_more, with a node. False after an error. */
static bool read_additional(schema_reader *r, struct json_object *schema, const schema_place *at,
                            const object_parts *parts, const grammar_node **more, bool *has_more) {
    schema_place here = {at, "additionalProperties", 0};
    struct json_object *others = schema_find(schema, "additionalProperties");
    *has_more = true;
    if (json_object_object_get_ex(schema, "patternProperties", NULL)) {
        return read_pattern_member(r, schema, at, more);
    }
    *has_more =
        others ? !json_object_is_type(others, json_type_boolean) || json_object_get_boolean(others)
               : !schema_find(schema, "properties"); /* closed unless asked */
    if (*has_more) {
        const grammar_node *value = others ? read_schema(r, others, &here) : any_value(r);
        *more = member(r, other_names(r, parts->names, &here), value);
    }
    return grammar_status(r->g) == SMOE_OK;
}

/* A required name without a schema of its own has that of additional members. */
static bool add_bare_required(schema_reader *r, struct json_object *schema,
                              struct json_object *required, const schema_place *at,
                              object_parts *parts) {
    struct json_object *others = schema_find(schema, "additionalProperties");
    size_t n = required ? json_object_array_length(required) : 0;
    schema_place here = {at, "required", 0};
    schema_place there = {at, "additionalProperties", 0};
    for (size_t i = 0; i < n; i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(required, i));
        if (json_object_object_get_ex(parts->names, name, NULL)) {
            continue;
        }
        if ((!others && schema_find(schema, "properties")) ||
            json_object_object_get_ex(schema, "patternProperties", NULL)) {
            return schema_wrong(r, &here, "\"%.60s\" is not among the properties", name);
        }
        const grammar_node *value = others ? read_schema(r, others, &there) : any_value(r);
        parts->item[parts->n] = member(r, schema_literal(r, name, strlen(name)), value);
        parts->is_required[parts->n++] = true;
        json_object_object_add(parts->names, name, NULL);
    }
    return true;
}

static const grammar_node *read_object(schema_reader *r, struct json_object *schema,
                                       const schema_place *at) {
    object_parts parts = {.names = schema_own(r, json_object_new_object())};
    struct json_object *required;
    const grammar_node *more = NULL;
    const grammar_node *node = NULL;
    bool has_more = false;
    if (parts.names && read_required(r, schema, at, &required) &&
        read_properties(r, schema_find(schema, "properties"), required, at, &parts) &&
        add_bare_required(r, schema, required, at, &parts) &&
        read_additional(r, schema, at, &parts, &more, &has_more)) {
        node = grammar_list(r->g, parts.n, parts.item, parts.is_required, more, has_more,
                            grammar_text(r->g, ","));
        node = schema_rule(r, "object", braces(r, "{", node, "}"));
    }
    free((void *)parts.item);
    free(parts.is_required);
    return node;
}

/* ---- arrays */

/* first: the elements by place, each behind a comma but the first; then min to max more. */
static const grammar_node *join(schema_reader *r, size_t n, const grammar_node *const *first,
                                const grammar_node *more, uint32_t min, uint32_t max) {
    grammar *g = r->g;
    const grammar_node *comma = grammar_text(g, ",");
    const grammar_node *nothing = grammar_text(g, "");
    const grammar_node *tail = nothing;
    if (max > n) {
        uint32_t least = min > n ? min - (uint32_t)n : 0;
        uint32_t most = max == GRAMMAR_MANY ? max : max - (uint32_t)n;
        if (n == 0) {
            least -= least > 0;
            most -= most != GRAMMAR_MANY;
        }
        tail = grammar_repeat(g, GRAMMAR_SEQ_OF(g, comma, more), least, most);
        if (n == 0) {
            tail = GRAMMAR_SEQ_OF(g, more, tail);
            return min == 0 ? GRAMMAR_ALT_OF(g, nothing, tail) : tail;
        }
    }
    for (size_t i = n; i-- > 0;) {
        /* the array may end before element i when enough stand before it */
        if (i >= max) {
            continue;
        }
        tail = i ? GRAMMAR_SEQ_OF(g, comma, first[i], tail) : GRAMMAR_SEQ_OF(g, first[i], tail);
        if (i >= min) {
            tail = GRAMMAR_ALT_OF(g, nothing, tail);
        }
    }
    return tail;
}

static const grammar_node *read_array(schema_reader *r, struct json_object *schema,
                                      const schema_place *at) {
    struct json_object *prefix = schema_find(schema, "prefixItems");
    struct json_object *items = schema_find(schema, "items");
    schema_place prefix_at = {at, "prefixItems", 0};
    schema_place items_at = {at, "items", 0};
    uint32_t min = 0;
    uint32_t max = GRAMMAR_MANY;
    if (!schema_count(r, schema, at, "minItems", &min) ||
        !schema_count(r, schema, at, "maxItems", &max)) {
        return NULL;
    }
    if (min > SCHEMA_ITEMS) {
        return schema_wrong(r, at, "minItems is above the limit of %d", SCHEMA_ITEMS);
    }
    max = max != GRAMMAR_MANY && max > SCHEMA_ITEMS ? GRAMMAR_MANY : max;
    if (prefix && !json_object_is_type(prefix, json_type_array)) {
        return schema_wrong(r, &prefix_at, "must be an array");
    }
    if (max < min) {
        return never(r);
    }
    size_t n = prefix ? json_object_array_length(prefix) : 0;
    const grammar_node **first = mem_array(n, sizeof *first);
    if (!first) {
        grammar_out_of_memory(r->g, n * sizeof *first);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        schema_place place = {&prefix_at, NULL, i};
        first[i] = element(r, read_schema(r, json_object_array_get_idx(prefix, i), &place));
    }
    const grammar_node *value = NULL;
    if (items || !prefix) {
        value = items ? read_schema(r, items, &items_at) : any_value(r);
    } else {
        value = never(r); /* closed unless asked, as with objects */
    }
    const grammar_node *node = join(r, n, first, element(r, value), min, max);
    free((void *)first);
    return schema_rule(r, "array", braces(r, "[", node, "]"));
}

/* ---- enumerations */

static const grammar_node *literal_value(schema_reader *r, struct json_object *value) {
    grammar *g = r->g;
    const grammar_node *nodes[2];
    if (json_object_is_type(value, json_type_string)) {
        return GRAMMAR_SEQ_OF(g, grammar_text(g, "\""),
                              schema_literal(r, json_object_get_string(value),
                                             (size_t)json_object_get_string_len(value)),
                              grammar_text(g, "\""));
    }
    const grammar_node *list = grammar_text(g, "");
    if (json_object_is_type(value, json_type_object)) {
        bool is_first = true;
        json_object_object_foreach(value, name, inner) {
            nodes[0] = grammar_text(g, is_first ? "" : ",");
            nodes[1] = member(r, schema_literal(r, name, strlen(name)), literal_value(r, inner));
            list = GRAMMAR_SEQ_OF(g, list, nodes[0], nodes[1]);
            is_first = false;
        }
        return braces(r, "{", list, "}");
    }
    if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            nodes[0] = grammar_text(g, i ? "," : "");
            nodes[1] = element(r, literal_value(r, json_object_array_get_idx(value, i)));
            list = GRAMMAR_SEQ_OF(g, list, nodes[0], nodes[1]);
        }
        return braces(r, "[", list, "]");
    }
    return grammar_text(g, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
}

static bool type_admits(unsigned types, struct json_object *value) {
    unsigned type = schema_value_type(value);
    return types & type || (type == TYPE_INTEGER && types & TYPE_NUMBER);
}

/* The values of enum and const that the types admit. */
static const grammar_node *read_values(schema_reader *r, struct json_object *schema, unsigned types,
                                       const schema_place *at) {
    struct json_object *list = schema_find(schema, "enum");
    struct json_object *only = schema_find(schema, "const");
    bool has_list = json_object_object_get_ex(schema, "enum", NULL);
    bool has_only = json_object_object_get_ex(schema, "const", NULL);
    schema_place here = {at, "enum", 0};
    json_object_object_foreach(schema, key, ignored) {
        (void)ignored;
        if (strcmp(key, "enum") != 0 && strcmp(key, "const") != 0 && strcmp(key, "type") != 0 &&
            !schema_is_annotation(key)) {
            return schema_wrong(r, at,
                                "%s together with %s is not supported; list the values that "
                                "fit both",
                                has_list ? "enum" : "const", key);
        }
    }
    if (has_list && !json_object_is_type(list, json_type_array)) {
        return schema_wrong(r, &here, "must be an array");
    }
    size_t n = has_list ? json_object_array_length(list) : 1;
    const grammar_node **node = mem_array(n, sizeof *node);
    size_t n_node = 0;
    if (!node) {
        grammar_out_of_memory(r->g, n * sizeof *node);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        struct json_object *value = has_list ? json_object_array_get_idx(list, i) : only;
        if (type_admits(types, value) && (!has_only || schema_equal(value, only))) {
            node[n_node++] = literal_value(r, value);
        }
    }
    const grammar_node *choice =
        n_node ? schema_rule(r, "enum", grammar_alt(r->g, n_node, node)) : never(r);
    free((void *)node);
    return choice;
}

/* ---- anyOf and oneOf */

static const grammar_node *read_branches(schema_reader *r, struct json_object *schema,
                                         const char *key, const schema_place *at) {
    struct json_object *list = schema_find(schema, key);
    schema_place here = {at, key, 0};
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0) {
        return schema_wrong(r, &here, "must be an array with at least one schema");
    }
    size_t n = json_object_array_length(list);
    struct json_object *base = schema_without(r, schema, (const char *const[]){key, NULL});
    struct json_object *merged = schema_own(r, json_object_new_array());
    const grammar_node **node = mem_array(n, sizeof *node);
    const grammar_node *choice = NULL;
    if (!node || !base || !merged) {
        grammar_out_of_memory(r->g, n * sizeof *node);
        free((void *)node);
        return NULL;
    }
    for (size_t i = 0; i < n && grammar_status(r->g) == SMOE_OK; i++) {
        schema_place place = {&here, NULL, i};
        struct json_object *branch = json_object_array_get_idx(list, i);
        if (json_object_object_length(base) > 0) {
            branch = schema_merge(r, base, branch, &place);
        }
        json_object_array_add(merged, json_object_get(branch));
        for (size_t k = 0; strcmp(key, "oneOf") == 0 && k < i; k++) {
            struct json_object *other = json_object_array_get_idx(merged, k);
            if (grammar_status(r->g) == SMOE_OK && !schema_is_disjoint(r, other, branch, at, 0)) {
                schema_wrong(r, &here,
                             "a value might satisfy both %zu and %zu, which oneOf "
                             "forbids; use anyOf, or tell them apart by type or by a "
                             "required property",
                             k, i);
            }
        }
        node[i] = read_schema(r, branch, &place);
    }
    if (grammar_status(r->g) == SMOE_OK) {
        choice = grammar_alt(r->g, n, node);
    }
    free((void *)node);
    return choice;
}

/* ---- keywords */

static const struct {
    const char *key;
    unsigned types; /* that it speaks of; 0: any */
} keywords[] = {
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"oneOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"properties", TYPE_OBJECT},
    {"required", TYPE_OBJECT},
    {"additionalProperties", TYPE_OBJECT},
    {"patternProperties", TYPE_OBJECT},
    {"items", TYPE_ARRAY},
    {"prefixItems", TYPE_ARRAY},
    {"minItems", TYPE_ARRAY},
    {"maxItems", TYPE_ARRAY},
    {"minLength", TYPE_STRING},
    {"maxLength", TYPE_STRING},
    {"pattern", TYPE_STRING},
    {"format", TYPE_STRING},
    {"minimum", TYPE_NUMBER},
    {"maximum", TYPE_NUMBER},
    {"exclusiveMinimum", TYPE_NUMBER},
    {"exclusiveMaximum", TYPE_NUMBER},
    {"multipleOf", TYPE_NUMBER},
};

/* Refuses keywords that are not known; collects the types that the others speak of. */
static bool check_keywords(schema_reader *r, struct json_object *schema, const schema_place *at,
                           unsigned *implied) {
    *implied = 0;
    json_object_object_foreach(schema, key, value) {
        bool is_known = schema_is_annotation(key);
        for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
            if (strcmp(keywords[i].key, key) == 0) {
                is_known = true;
                *implied |= keywords[i].types;
            }
        }
        /* it asks for nothing */
        is_known |= strcmp(key, "uniqueItems") == 0 &&
                    json_object_is_type(value, json_type_boolean) &&
                    !json_object_get_boolean(value);
        if (!is_known) {
            schema_place here = {at, key, 0};
            return schema_wrong(r, &here, "this keyword is not supported");
        }
    }
    return true;
}

static const grammar_node *read_types(schema_reader *r, struct json_object *schema, unsigned types,
                                      const schema_place *at) {
    grammar *g = r->g;
    const grammar_node *node[8];
    size_t n = 0;
    if (types & TYPE_OBJECT) {
        node[n++] = read_object(r, schema, at);
    }
    if (types & TYPE_ARRAY) {
        node[n++] = read_array(r, schema, at);
    }
    if (types & TYPE_STRING) {
        node[n++] = schema_string(r, schema, at);
    }
    if (types & (TYPE_NUMBER | TYPE_INTEGER)) {
        node[n++] = schema_number(r, schema, at, !(types & TYPE_NUMBER));
    }
    if (types & TYPE_BOOLEAN) {
        node[n++] = GRAMMAR_ALT_OF(g, grammar_text(g, "true"), grammar_text(g, "false"));
    }
    if (types & TYPE_NULL) {
        node[n++] = grammar_text(g, "null");
    }
    return n ? grammar_alt(g, n, node) : never(r);
}

static const grammar_node *call_reference(schema_reader *r, struct json_object *ref,
                                          const schema_place *at) {
    struct json_object *target = schema_resolve(r, ref, at);
    if (!target && grammar_status(r->g) != SMOE_OK) {
        return NULL;
    }
    const char *name = json_object_get_string(ref);
    uint32_t n_rule = r->g->n_rule;
    uint32_t rule = grammar_rule_named(r->g, name, strlen(name), 0);
    if (r->g->n_rule > n_rule) {
        if (r->n_pending == r->cap_pending) {
            size_t cap = r->cap_pending ? 2 * r->cap_pending : 16;
            schema_pending *grown = realloc(r->pending, cap * sizeof *grown);
            if (!grown) {
                grammar_out_of_memory(r->g, cap * sizeof *grown);
                return NULL;
            }
            r->pending = grown;
            r->cap_pending = cap;
        }
        r->pending[r->n_pending++] = (schema_pending){rule, target};
    }
    return grammar_call(r->g, rule);
}

static const grammar_node *read_keywords(schema_reader *r, struct json_object *schema,
                                         const schema_place *at) {
    unsigned implied;
    if (!check_keywords(r, schema, at, &implied)) {
        return NULL;
    }
    if (schema_is_only(schema, "$ref")) {
        return call_reference(r, schema_find(schema, "$ref"), at);
    }
    if (schema_find(schema, "$ref") || schema_find(schema, "allOf")) {
        struct json_object *flat = schema_flatten(r, schema, at);
        return flat ? read_schema(r, flat, at) : NULL;
    }
    if (json_object_object_get_ex(schema, "anyOf", NULL)) {
        return read_branches(r, schema, "anyOf", at);
    }
    if (json_object_object_get_ex(schema, "oneOf", NULL)) {
        return read_branches(r, schema, "oneOf", at);
    }
    bool has_type = json_object_object_get_ex(schema, "type", NULL);
    unsigned types = schema_types(r, schema, at);
    if (grammar_status(r->g) != SMOE_OK) {
        return NULL;
    }
    if (json_object_object_get_ex(schema, "enum", NULL) ||
        json_object_object_get_ex(schema, "const", NULL)) {
        return read_values(r, schema, types, at);
    }
    if (!has_type && !implied) {
        return any_value(r);
    }
    return read_types(r, schema, has_type ? types : implied, at);
}

static const grammar_node *read_schema(schema_reader *r, struct json_object *schema,
                                       const schema_place *at) {
    const grammar_node *node = NULL;
    if (json_object_is_type(schema, json_type_boolean)) {
        return json_object_get_boolean(schema) ? any_value(r) : never(r);
    }
    if (!json_object_is_type(schema, json_type_object)) {
        return schema_wrong(r, at, "must be a schema: an object, true or false");
    }
    if (r->depth >= SCHEMA_DEPTH || r->n_visit >= SCHEMA_VISITS) {
        return schema_wrong(r, at,
                            "too many schemas within schemas; recursion is supported "
                            "through $ref alone, not through allOf");
    }
    r->depth++;
    r->n_visit++;
    node = read_keywords(r, schema, at);
    r->depth--;
    return node;
}

int schema_read(grammar *g, const char *text, size_t bytes, uint32_t *root) {
    schema_reader r = {.g = g, .space = UINT32_MAX, .value = UINT32_MAX, .string = UINT32_MAX};
    if (bytes > GRAMMAR_TEXT_BYTES) {
        g->status = err_set(g->err, SMOE_ERR_FORMAT, "schema: %zu bytes are more than %u", bytes,
                            GRAMMAR_TEXT_BYTES);
        return g->status;
    }
    g->status = json_parse(&r.root, text, bytes, "schema", JSON_UNIQUE_KEYS, g->err);
    r.made = json_object_new_array();
    if (!r.made) {
        grammar_out_of_memory(g, sizeof(void *));
    }
    *root = grammar_rule_named(g, "#", 1, 0);
    if (g->status == SMOE_OK) {
        grammar_define(g, *root, read_schema(&r, r.root, NULL));
    }
    /* reading one may name more */
    for (size_t i = 0; i < r.n_pending && g->status == SMOE_OK; i++) {
        schema_pending next = r.pending[i];
        schema_place at = {NULL, g->rules[next.rule].name + 2, 0};
        grammar_define(g, next.rule, read_schema(&r, next.schema, &at));
    }
    free(r.pending);
    json_object_put(r.made);
    json_object_put(r.root);
    return g->status;
}
