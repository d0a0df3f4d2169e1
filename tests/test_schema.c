/* JSON schemas: documents that another validator accepts and refuses (tests/data/grammar), random
 * texts checked by a small validator here, and what is refused. */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "grammar_util.h"
#include "text/tokenizer.h"

static smoe_error err;

/* ---- a small validator, of values as json-c reads them; it shares nothing with the reader */

static bool is_valid(struct json_object *root, struct json_object *schema, struct json_object *v);

static struct json_object *get(struct json_object *o, const char *key) {
    struct json_object *v = NULL;
    json_object_object_get_ex(o, key, &v);
    return v;
}

static bool has(struct json_object *o, const char *key) {
    return json_object_object_get_ex(o, key, NULL);
}

static bool is_type(const char *name, struct json_object *v) {
    enum json_type t = json_object_get_type(v);
    bool is_number = t == json_type_int || t == json_type_double;
    if (strcmp(name, "integer") == 0) {
        return is_number && fmod(json_object_get_double(v), 1) == 0;
    }
    return strcmp(name, "number") == 0    ? is_number
           : strcmp(name, "null") == 0    ? t == json_type_null
           : strcmp(name, "boolean") == 0 ? t == json_type_boolean
           : strcmp(name, "string") == 0  ? t == json_type_string
           : strcmp(name, "array") == 0   ? t == json_type_array
                                          : t == json_type_object;
}

static bool same(struct json_object *a, struct json_object *b) {
    if (is_type("number", a) && is_type("number", b)) {
        return json_object_get_double(a) == json_object_get_double(b);
    }
    return json_object_equal(a, b);
}

static bool is_right_type(struct json_object *type, struct json_object *v) {
    bool is_list = json_object_is_type(type, json_type_array);
    size_t n = is_list ? json_object_array_length(type) : 1;
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = is_list ? json_object_array_get_idx(type, i) : type;
        if (is_type(json_object_get_string(one), v)) {
            return true;
        }
    }
    return false;
}

static bool is_number_valid(struct json_object *s, struct json_object *v) {
    double x = json_object_get_double(v);
    double step = has(s, "multipleOf") ? json_object_get_double(get(s, "multipleOf")) : 0;
    double times = step > 0 ? x / step : 0;
    return (!has(s, "minimum") || x >= json_object_get_double(get(s, "minimum"))) &&
           (!has(s, "maximum") || x <= json_object_get_double(get(s, "maximum"))) &&
           (!has(s, "exclusiveMinimum") ||
            x > json_object_get_double(get(s, "exclusiveMinimum"))) &&
           (!has(s, "exclusiveMaximum") ||
            x < json_object_get_double(get(s, "exclusiveMaximum"))) &&
           fabs(times - nearbyint(times)) < 1e-6 * (1 + fabs(times) * 1e-6);
}

static bool is_string_valid(struct json_object *s, struct json_object *v) {
    const char *text = json_object_get_string(v);
    int64_t n = 0;
    for (int i = 0; i < json_object_get_string_len(v); i++) {
        n += ((uint8_t)text[i] & 0xc0) != 0x80;
    }
    return (!has(s, "minLength") || n >= json_object_get_int64(get(s, "minLength"))) &&
           (!has(s, "maxLength") || n <= json_object_get_int64(get(s, "maxLength")));
}

static bool is_array_valid(struct json_object *root, struct json_object *s, struct json_object *v) {
    size_t n = json_object_array_length(v);
    struct json_object *prefix = get(s, "prefixItems");
    size_t n_prefix = prefix ? json_object_array_length(prefix) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = json_object_array_get_idx(v, i);
        if (i < n_prefix) {
            if (!is_valid(root, json_object_array_get_idx(prefix, i), one)) {
                return false;
            }
        } else if (has(s, "items") && !is_valid(root, get(s, "items"), one)) {
            return false;
        }
    }
    return (!has(s, "minItems") || n >= (size_t)json_object_get_int64(get(s, "minItems"))) &&
           (!has(s, "maxItems") || n <= (size_t)json_object_get_int64(get(s, "maxItems")));
}

static bool is_object_valid(struct json_object *root, struct json_object *s,
                            struct json_object *v) {
    struct json_object *properties = get(s, "properties");
    struct json_object *required = get(s, "required");
    for (size_t i = 0; required && i < json_object_array_length(required); i++) {
        if (!has(v, json_object_get_string(json_object_array_get_idx(required, i)))) {
            return false;
        }
    }
    json_object_object_foreach(v, key, value) {
        struct json_object *own = properties ? get(properties, key) : NULL;
        if (own || (properties && has(properties, key))) {
            if (!is_valid(root, own, value)) {
                return false;
            }
        } else if (has(s, "additionalProperties") && !has(s, "patternProperties") &&
                   !is_valid(root, get(s, "additionalProperties"), value)) {
            return false;
        }
    }
    return true;
}

static int count_valid(struct json_object *root, struct json_object *list, struct json_object *v) {
    int n = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        n += is_valid(root, json_object_array_get_idx(list, i), v);
    }
    return n;
}

/* Only the references that the data has: "#" and "#/a/b" with the three escapes. */
static struct json_object *follow(struct json_object *root, const char *ref) {
    char step[64];
    while (*ref == '#') {
        ref++;
    }
    while (*ref == '/') {
        size_t n = 0;
        for (ref++; *ref && *ref != '/' && n + 1 < sizeof step; ref++) {
            char c = *ref;
            if (c == '~') {
                c = *++ref == '1' ? '/' : '~';
            } else if (c == '%') {
                unsigned code = 0;
                CHECK(sscanf(ref + 1, "%2x", &code) == 1);
                c = (char)code;
                ref += 2;
            }
            step[n++] = c;
        }
        step[n] = '\0';
        root = get(root, step);
        CHECK(root);
    }
    return root;
}

static bool is_valid(struct json_object *root, struct json_object *s, struct json_object *v) {
    if (json_object_is_type(s, json_type_boolean)) {
        return json_object_get_boolean(s);
    }
    struct json_object *list = get(s, "enum");
    bool is_listed = !list;
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        is_listed |= same(json_object_array_get_idx(list, i), v);
    }
    return is_listed && (!has(s, "const") || same(get(s, "const"), v)) &&
           (!has(s, "$ref") ||
            is_valid(root, follow(root, json_object_get_string(get(s, "$ref"))), v)) &&
           (!has(s, "type") || is_right_type(get(s, "type"), v)) &&
           (!has(s, "anyOf") || count_valid(root, get(s, "anyOf"), v) > 0) &&
           (!has(s, "oneOf") || count_valid(root, get(s, "oneOf"), v) == 1) &&
           (!has(s, "allOf") || count_valid(root, get(s, "allOf"), v) ==
                                    (int)json_object_array_length(get(s, "allOf"))) &&
           (!is_type("number", v) || is_number_valid(s, v)) &&
           (!is_type("string", v) || is_string_valid(s, v)) &&
           (!is_type("array", v) || is_array_valid(root, s, v)) &&
           (!is_type("object", v) || is_object_valid(root, s, v));
}

/* ---- the cases of another validator */

typedef struct schema_case {
    struct json_object *object;
    const char *name;
    struct json_object *schema;
    const char *text; /* of the schema */
} schema_case;

/* Reads the lines of tests/data/grammar/schemas.jsonl; malloc'ed. */
static schema_case *read_cases(size_t *n) {
    char *data = test_read_file(test_data("grammar/schemas.jsonl"), NULL);
    schema_case *cases = calloc(1000, sizeof *cases);
    CHECK(cases);
    *n = 0;
    for (char *line = strtok_r(data, "\n", &data); line; line = strtok_r(NULL, "\n", &data)) {
        schema_case *c = &cases[(*n)++];
        CHECK_OK(json_parse(&c->object, line, strlen(line), "schemas.jsonl", 0, &err));
        c->name = json_object_get_string(get(c->object, "name"));
        c->schema = get(c->object, "schema");
        c->text = json_object_to_json_string_ext(c->schema, JSON_C_TO_STRING_NOSLASHESCAPE);
    }
    CHECK(*n >= 60);
    return cases;
}

TEST(schemas_take_what_is_valid) {
    size_t n;
    schema_case *cases = read_cases(&n);
    for (size_t i = 0; i < n; i++) {
        machine m;
        if (machine_open(&m, schema_read, cases[i].text, &err) != SMOE_OK) {
            FAIL("%s: %s", cases[i].name, err.text);
        }
        for (int good = 0; good < 2; good++) {
            struct json_object *list = get(cases[i].object, good ? "valid" : "invalid");
            for (size_t k = 0; k < json_object_array_length(list); k++) {
                const char *text = json_object_get_string(json_object_array_get_idx(list, k));
                if (machine_accepts(&m, text) != good) {
                    FAIL("%s: %s is %s", cases[i].name, text, good ? "refused" : "accepted");
                }
            }
        }
        machine_close(&m);
    }
}

TEST(schemas_make_valid_texts) {
    size_t n;
    schema_case *cases = read_cases(&n);
    const smoe_tokenizer *t = small_tokenizer();
    int walks = test_thorough() ? 50 : test_is_slow() ? 1 : 3;
    size_t n_text = 0;
    for (size_t i = 0; i < n; i++) {
        smoe_constraint *c;
        CHECK_OK(smoe_constraint_open_schema(&c, t, cases[i].text, strlen(cases[i].text), &err));
        for (int k = 0; k < walks; k++) {
            size_t bytes;
            struct json_object *value = NULL;
            char *text = random_text(c, t, 600, &bytes);
            if (!text) { /* a long string, say; it need not end in time */
                continue;
            }
            if (json_parse(&value, text, bytes, "text", 0, &err) != SMOE_OK) {
                FAIL("%s: %s: %s", cases[i].name, text, err.text);
            }
            if (!is_valid(cases[i].schema, cases[i].schema, value)) {
                FAIL("%s: %s", cases[i].name, text);
            }
            json_object_put(value);
            free(text);
            n_text++;
        }
        smoe_constraint_close(c);
    }
    CHECK(n_text * 10 > n * (size_t)walks * 9);
}

/* ---- numbers, against arithmetic */

static void check_range(const char *schema, double low, double high, double step, bool is_integer) {
    machine m;
    if (machine_open(&m, schema_read, schema, &err) != SMOE_OK) {
        CHECK_HAS(err.text, "no finite text");
        for (double v = ceil(low); v <= high; v += 1) {
            FAIL("%s holds %g", schema, v);
        }
        return;
    }
    for (double v = low - 40 * step; v <= high + 40 * step; v += step) {
        char text[64];
        double shown = nearbyint(v * 100) / 100;
        bool is_whole = fmod(shown, 1) == 0;
        bool want = shown >= low && shown <= high && (!is_integer || is_whole);
        snprintf(text, sizeof text, is_whole ? "%.0f" : "%.2f", shown + 0.0);
        if (strcmp(text, "-0") == 0) {
            continue;
        }
        if (machine_accepts(&m, text) != want) {
            FAIL("%s: %s is %s", schema, text, want ? "refused" : "accepted");
        }
    }
    machine_close(&m);
}

TEST(schema_bounds_are_exact) {
    for (int i = 0; i < 120; i++) {
        char schema[200];
        int span = (int)(test_rand() % 3000);
        int low = (int)(test_rand() % 4000) - 2000;
        low = i % 3 == 0 ? low / 50 : low;
        span = i % 4 == 0 ? span / 100 : span;
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", low,
                 low + span);
        check_range(schema, low, low + span, 1, true);
        double a = low / 100.0;
        double b = (low + span) / 100.0;
        snprintf(schema, sizeof schema, "{\"type\":\"number\",\"minimum\":%.2f,\"maximum\":%.2f}",
                 a, b);
        check_range(schema, a, b, 0.01, false);
        snprintf(schema, sizeof schema,
                 "{\"type\":\"integer\",\"exclusiveMinimum\":%.2f,\"exclusiveMaximum\":%.2f}",
                 a - 0.005, b + 0.005);
        check_range(schema, a, b, 1, true);
    }
}

/* ---- white space */

TEST(schema_white_space_is_bounded) {
    machine m;
    bool is_whole;
    char text[100];
    CHECK_OK(machine_open(&m, schema_read, "{\"type\":\"array\"}", &err));
    CHECK(machine_accepts(&m, "[]") && machine_accepts(&m, "[ ]"));
    CHECK(machine_accepts(&m, "[\n        1,\n        2\n]"));
    CHECK(machine_accepts(&m, "[\n\t\t1, 2\n]"));
    CHECK(!machine_accepts(&m, "[  1]") && !machine_accepts(&m, "[\n\n1]"));
    CHECK(!machine_accepts(&m, "[1 ,2]") && !machine_accepts(&m, " [1]"));
    CHECK(!machine_accepts(&m, "[1]\n"));
    memset(text, ' ', sizeof text);
    memcpy(text, "[\n", 2);
    CHECK(machine_reads(&m, text, 34, &is_whole));
    CHECK(!machine_reads(&m, text, 35, &is_whole));
    machine_close(&m);
}

/* ---- what is refused */

static const struct {
    const char *schema;
    const char *error;
} refused[] = {
    {"{", "is not JSON"},
    {"[]", "#: must be a schema"},
    {"{\"properties\":{\"a\":3}}", "#/properties/a: must be a schema"},
    {"{\"type\":\"objekt\"}", "#/type: must be"},
    {"{\"not\":{}}", "#/not: this keyword is not supported"},
    {"{\"properties\":{\"x/y\":{\"if\":{}}}}", "/if: this keyword is not supported"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "#/uniqueItems: this keyword"},
    {"{\"type\":\"array\",\"contains\":{}}", "#/contains: this keyword"},
    {"{\"type\":\"object\",\"minProperties\":1}", "#/minProperties: this keyword"},
    {"{\"type\":\"object\",\"propertyNames\":{}}", "#/propertyNames: this keyword"},
    {"{\"$anchor\":\"a\"}", "#/$anchor: this keyword"},
    {"{\"nullable\":true}", "#/nullable: this keyword"},
    {"{\"$ref\":\"http://x/y\"}", "#/$ref: \"http://x/y\" is not supported"},
    {"{\"$ref\":\"#/$defs/a\"}", "names nothing"},
    {"{\"$ref\":\"#/type\",\"type\":\"null\"}", "is no schema"},
    {"{\"$ref\":\"#\"}", "rule \"#\" begins with itself"},
    {"{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}},"
     "\"$ref\":\"#/$defs/a\"}",
     "rule \"#/$defs/a\" begins with itself"},
    {"{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/a\"}",
     "through $ref alone"},
    {"{\"type\":\"string\",\"format\":\"colour\"}", "#/format: the format \"colour\""},
    {"{\"type\":\"number\",\"format\":\"money\"}", "#/format: the format \"money\""},
    {"{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", "#/pattern: lookahead (at byte 3)"},
    {"{\"type\":\"string\",\"pattern\":\"a(?<!b)\"}", "lookbehind"},
    {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "a reference to a group"},
    {"{\"type\":\"string\",\"pattern\":\"\\\\bx\"}", "a word boundary"},
    {"{\"type\":\"string\",\"pattern\":\"a^b\"}", "an anchor that does not stand at an end"},
    {"{\"type\":\"string\",\"pattern\":\"(a|b$)\"}", "an anchor"},
    {"{\"type\":\"string\",\"pattern\":\"[a\"}", "a class without an end"},
    {"{\"type\":\"string\",\"pattern\":\"a)\"}", "an unmatched"},
    {"{\"type\":\"string\",\"pattern\":\"(a\"}", "a group without an end"},
    {"{\"type\":\"string\",\"pattern\":\"+\"}", "a repetition of nothing"},
    {"{\"type\":\"string\",\"pattern\":\"\\\\p{Greek}\"}", "general categories"},
    {"{\"type\":\"string\",\"pattern\":\"a{5000}\"}", "a repetition above 1000"},
    {"{\"type\":\"string\",\"minLength\":-1}", "#/minLength: must be a whole number"},
    {"{\"type\":\"string\",\"maxLength\":\"2\"}", "#/maxLength: must be a whole number"},
    {"{\"type\":\"string\",\"minLength\":99999}", "above the limit"},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":1}", "no finite text"},
    {"{\"type\":\"integer\",\"minimum\":\"0\"}", "#/minimum: must be a number"},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no finite text"},
    {"{\"type\":\"integer\",\"minimum\":10000000000000000000000}", "digits"},
    {"{\"type\":\"number\",\"multipleOf\":0}", "#/multipleOf: must be a number above 0"},
    {"{\"type\":\"number\",\"multipleOf\":0.3}", "#/multipleOf: supported are"},
    {"{\"enum\":[\"a\",\"b\"],\"minLength\":3}", "enum together with minLength"},
    {"{\"enum\":3}", "#/enum: must be an array"},
    {"{\"enum\":[]}", "no finite text"},
    {"false", "no finite text"},
    {"{\"required\":\"a\"}", "#/required: must be a list"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"b\"]}",
     "#/required: \"b\" is not among"},
    {"{\"anyOf\":[]}", "#/anyOf: must be an array"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     "#/oneOf: a value might satisfy both 0 and 1"},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}}},{\"type\":\"object\"}]}",
     "might satisfy both"},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "cannot be merged"},
    {"{\"patternProperties\":{\"a\":{},\"b\":{}}}", "#/patternProperties: supported only"},
    {"{\"type\":\"array\",\"prefixItems\":{}}", "#/prefixItems: must be an array"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "no finite text"},
};

TEST(schemas_name_what_is_refused) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        machine m;
        if (machine_open(&m, schema_read, refused[i].schema, &err) == SMOE_OK) {
            FAIL("%s is taken", refused[i].schema);
        }
        if (!strstr(err.text, refused[i].error)) {
            FAIL("%s: \"%s\", without \"%s\"", refused[i].schema, err.text, refused[i].error);
        }
    }
}

TEST(schemas_survive_each_failed_allocation) {
    static const char text[] =
        "{\"$defs\":{\"d\":{\"type\":\"integer\",\"minimum\":3}},\"type\":\"object\","
        "\"properties\":"
        "{\"a\":{\"$ref\":\"#/$defs/d\"},\"b\":{\"type\":\"string\",\"pattern\":\"^[a-c]+$\","
        "\"maxLength\":3},\"c\":{\"oneOf\":[{\"type\":\"null\"},{\"allOf\":[{\"type\":\"array\"},"
        "{\"maxItems\":2}]}]},\"d\":{\"enum\":[1,\"x\"]}},\"additionalProperties\":true}";
    if (!alloc_guard_active()) {
        SKIP("no allocation guard");
    }
    /* json-c is of no two minds: what it cannot allocate is an error or ends in one */
    for (uint64_t n = 1;; n += 1 + n / 40) {
        machine m;
        alloc_guard_fail_at(n);
        int rc = machine_open(&m, schema_read, text, &err);
        bool failed = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        if (rc == SMOE_OK) {
            machine_close(&m);
        }
        if (!failed) {
            CHECK_INT(rc, SMOE_OK);
            CHECK(n > 100);
            return;
        }
        CHECK(rc != SMOE_OK);
    }
}

/* ---- generation */

TEST(cli_run_takes_schemas) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
        "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120},\"tags\":{\"type\":\"array\","
        "\"items\":{\"enum\":[\"a\",\"b\"]},\"maxItems\":3}},\"required\":[\"name\",\"age\"]}";
    struct json_object *parsed;
    CHECK_OK(json_parse(&parsed, schema, sizeof schema - 1, "schema", 0, &err));
    test_write_file(test_path("s.json"), schema, sizeof schema - 1);
    for (int i = 0; i < 3; i++) {
        char seed[] = {(char)('1' + i), '\0'};
        struct json_object *out;
        struct json_object *value;
        test_run r =
            test_smoe("run", "models/tales-8m", "-q", "--json", "-p", "The", "--seed", seed,
                      "--temp", "1.8", "--json-schema", i ? schema : test_path("s.json"), NULL);
        CHECK_INT(r.status, 0);
        CHECK_OK(json_parse(&out, r.out, strlen(r.out), "output", 0, &err));
        CHECK_TEXT(json_object_get_string(get(out, "finish")), "end");
        const char *text = json_object_get_string(get(out, "text"));
        CHECK_OK(json_parse(&value, text, strlen(text), "text", 0, &err));
        CHECK(is_valid(parsed, parsed, value));
        json_object_put(value);
        json_object_put(out);
    }
    json_object_put(parsed);
    test_run r = test_smoe("run", "models/tales-8m", "-q", "-p", "The", "--json-schema",
                           "{\"not\":{}}", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "#/not: this keyword is not supported");
}
