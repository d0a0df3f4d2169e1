/* text: Unicode data, patterns and normal forms against the reference library's results. */
#include "test.h"

#include <json-c/json.h>

#include "text/normalize.h"
#include "text/pretok.h"
#include "text/unicode.h"

static smoe_error err;

/* ---- lines of JSON */

typedef struct lines {
    char *text;
    char *next;
} lines;

static lines open_lines(const char *path) {
    size_t bytes;
    char *text = test_read_file(path, &bytes);
    return (lines){text, text};
}

/* NULL at the end; the caller's (json_object_put). */
static struct json_object *next_line(lines *l) {
    char *end = strchr(l->next, '\n');
    if (!end) {
        free(l->text);
        return NULL;
    }
    *end = '\0';
    struct json_object *row = json_tokener_parse(l->next);
    if (!row) {
        FAIL("not JSON: %.80s", l->next);
    }
    l->next = end + 1;
    return row;
}

static struct json_object *field(struct json_object *row, const char *key) {
    struct json_object *value = NULL;
    CHECK(json_object_object_get_ex(row, key, &value));
    return value;
}

/* ---- data */

TEST(unicode_classes_are_those_of_version_16) {
    CHECK_INT(ucd_class('A'), UCD_LU | UCD_WORD);
    CHECK_INT(ucd_class(' '), UCD_ZS | UCD_SPACE);
    CHECK_INT(ucd_class('\n'), UCD_CC | UCD_SPACE);
    CHECK_INT(ucd_class(0x85), UCD_CC | UCD_SPACE);
    CHECK_INT(ucd_class(0x180e), UCD_CF); /* White_Space only up to Unicode 6.2 */
    CHECK_INT(ucd_class(0x1c89), UCD_LU | UCD_WORD);
    CHECK_INT(ucd_class(0x105c9), UCD_LO | UCD_WORD);
    CHECK_INT(ucd_class(0x11de0), UCD_CN); /* a digit from Unicode 17 on */
    CHECK(ucd_is_number(0x11de0));
    CHECK(!ucd_is_number('a'));
    CHECK_INT(ucd_class(UCD_LAST), UCD_CN);
    CHECK(ucd_is_word(0x200d) && ucd_is_word(0x24b6) && !ucd_is_word('-'));
    CHECK(ucd_is_since_9(0x8d3) && !ucd_is_since_9(0x301));
    size_t n_letter = 0;
    for (uint32_t cp = 0; cp <= UCD_LAST; cp++) {
        n_letter += (ucd_class(cp) & UCD_CATEGORY_MASK) <= UCD_LO;
    }
    CHECK_INT(n_letter, 141028);
}

/* ---- normal forms */

static void check_normal(enum normalize_kind kind, struct json_object *text,
                         struct json_object *want) {
    byte_buf out = {.max_bytes = 1 << 20};
    normalize_step step = {.kind = kind};
    CHECK_OK(normalize_apply(&step, json_object_get_string(text),
                             (size_t)json_object_get_string_len(text), NULL, &out, &err));
    CHECK_TEXT(out.data, json_object_get_string(want));
    buf_free(&out);
}

TEST(normal_forms_equal_the_reference) {
    lines l = open_lines(test_data("text/normal-forms.jsonl"));
    for (struct json_object *row; (row = next_line(&l));) {
        for (unsigned form = 0; form < 4; form++) {
            check_normal(NORMALIZE_NFC + form, json_object_array_get_idx(row, 0),
                         json_object_array_get_idx(row, form + 1));
        }
        json_object_put(row);
    }
}

/* Half a million marks out of order: a quadratic ordering would outlast the time limit. */
TEST_LIMIT(normal_forms_take_linear_time, 20) {
    size_t n = 250000;
    char *text = malloc(4 * n + 2);
    size_t bytes = 0;
    text[bytes++] = 'a';
    for (size_t i = 0; i < n; i++) {
        memcpy(text + bytes, i % 2 ? "\xcc\x96" : "\xcc\x81", 2); /* U+0316 and U+0301 */
        bytes += 2;
    }
    byte_buf out = {.max_bytes = 4 << 20};
    CHECK_OK(
        normalize_apply(&(normalize_step){.kind = NORMALIZE_NFC}, text, bytes, NULL, &out, &err));
    CHECK_INT(out.bytes, bytes - 1); /* a and one acute became one character */
    CHECK(memcmp(out.data, "\xc3\xa1\xcc\x96\xcc\x96", 6) == 0);
    buf_free(&out);
    free(text);
}

/* ---- patterns */

static int collect(void *user, const char *text, size_t bytes, smoe_error *e) {
    (void)e;
    json_object_array_add(user, json_object_new_string_len(text, (int)bytes));
    return SMOE_OK;
}

static int compile(text_pattern **out, const char *pattern) {
    return pattern_compile(out, pattern, strlen(pattern), "test", &err);
}

/* The pieces that the pattern cuts text into, as a JSON list; valid until the next call. */
static const char *pieces(const char *pattern, const char *text, size_t bytes) {
    static struct json_object *list;
    pretok p = {.n_step = 1, .n_before_prefix = 1};
    pretok_run run;
    CHECK_OK(compile(&p.steps[0].pattern, pattern));
    json_object_put(list);
    list = json_object_new_array();
    CHECK_OK(pretok_run_init(&run, &p, collect, list, &err));
    CHECK_OK(pretok_run_text(&run, text, bytes, true, &err));
    pretok_run_free(&run);
    pretok_free(&p);
    return json_object_to_json_string(list);
}

TEST(patterns_equal_the_reference) {
    lines l = open_lines(test_data("text/patterns.jsonl"));
    int n = 0;
    for (struct json_object *row; (row = next_line(&l));) {
        const char *pattern = json_object_get_string(field(row, "pattern"));
        struct json_object *rows = field(row, "rows");
        text_pattern *compiled = NULL;
        int rc = compile(&compiled, pattern);
        pattern_free(compiled);
        for (size_t i = 0; rc == SMOE_OK && i < json_object_array_length(rows); i++) {
            struct json_object *text =
                json_object_array_get_idx(json_object_array_get_idx(rows, i), 0);
            struct json_object *want =
                json_object_array_get_idx(json_object_array_get_idx(rows, i), 1);
            CHECK_TEXT(pieces(pattern, json_object_get_string(text),
                              (size_t)json_object_get_string_len(text)),
                       json_object_to_json_string(want));
        }
        n += rc == SMOE_OK;
        json_object_put(row);
    }
    CHECK(n > 100); /* the others use what is refused */
}

TEST(patterns_fold_case_as_oniguruma) {
    CHECK_TEXT(pieces("(?i:'s|'k)", "x'\xc5\xbfy'\xe2\x84\xaa", 9),
               "[ \"x\", \"'\xc5\xbf\", \"y\", \"'\xe2\x84\xaa\" ]");
    CHECK_TEXT(pieces("(?i:[j-t]+)", "aS\xc5\xbf", 4), "[ \"a\", \"S\xc5\xbf\" ]");
}

/* PCRE2 10.42's JIT, left to its start optimisations, finds a match here. */
TEST(patterns_do_not_match_inside_an_atomic_group) {
    CHECK_TEXT(pieces("(?>z*'|)'", "z't", 3), "[ \"z't\" ]");
}

TEST(patterns_take_nul_and_the_last_code_point) {
    CHECK_TEXT(pieces("\\x00|[\\x{10ffff}]", "a\0b\xf4\x8f\xbf\xbf", 7),
               "[ \"a\", \"\\u0000\", \"b\", \"\xf4\x8f\xbf\xbf\" ]");
}

TEST(patterns_that_differ_between_engines_are_refused) {
    static const char *const refused[] = {
        "",
        "(",
        ")",
        "[a",
        "a**",
        "*a",
        "\\h",
        "\\b",
        "\\1",
        "(?i)a",
        "(?<n>a)",
        "\\p{Hanx}",
        "\\pL",
        "a{1,2}+",
        "[[:alpha:]]",
        "[]a]",
        "[a-\\d]",
        "[z-a]",
        "[a&&]",
        "(?i:ss)",
        "(?i:\\p{L})",
        "(?i:[^a])",
        "(?i:\xc3\xa9)",
        "(?i:s{2})",
        "(?=a)*",
        "^*",
        "\\x{110000}",
        "\\xe9",
        "(?#c)",
        "(?<=a+)b",
        "(a+)+",
        "(a|aa)+",
        "(?:a?){2,}",
        "(a*|b){1,2}",
        "(?:a{1,9}){1,99}",
        "a{1001}",
        "((a{9}){9}){99}",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        text_pattern *p = NULL;
        if (compile(&p, refused[i]) == SMOE_OK) {
            FAIL("%s was accepted", refused[i]);
        }
        CHECK(p == NULL);
        CHECK_HAS(err.text, "test: ");
    }
    text_pattern *p = NULL;
    CHECK_ERR(compile(&p, "\\p{Hanx}"), SMOE_ERR_UNSUPPORTED);
    CHECK_TEXT(err.text, "test: property \\p{Hanx} is not supported");
    CHECK_ERR(compile(&p, "a\\b"), SMOE_ERR_UNSUPPORTED);
    CHECK_TEXT(err.text, "test: escape \\b at byte 1 of the pattern is not supported");
}

TEST(patterns_nest_within_limits) {
    char deep[4096];
    text_pattern *p = NULL;
    memset(deep, '(', 2000);
    memset(deep + 2000, ')', 2000);
    CHECK_ERR(pattern_compile(&p, deep, 4000, "test", &err), SMOE_ERR_UNSUPPORTED);
    memset(deep, '[', 2000);
    CHECK_ERR(pattern_compile(&p, deep, 2000, "test", &err), SMOE_ERR_UNSUPPORTED);
}

/* Each of these would take hours on a megabyte; a pattern that is fit for text takes no time. */
TEST_LIMIT(patterns_have_a_step_budget, 20) {
    static const char *const slow[] = {"a*b|.", "a*a*a*b|.", "(?=a*b)|.", "[ab]*?c|.",
                                       "a*(?<!a)b|."};
    static const char *const fine[] = {"\\s*[\\r\\n]+|\\p{L}+|\\s+", "a*b?", ".{1,3}", "x*"};
    size_t n = 1 << 20;
    char *text = malloc(n);
    struct json_object *list = json_object_new_array();
    memset(text, 'a', n);
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        pretok p = {.n_step = 1, .n_before_prefix = 1};
        pretok_run run;
        CHECK_OK(compile(&p.steps[0].pattern, slow[i]));
        CHECK_OK(pretok_run_init(&run, &p, collect, list, &err));
        CHECK_ERR(pretok_run_text(&run, text, n, true, &err), SMOE_ERR_UNSUPPORTED);
        CHECK_HAS(err.text, "too many steps");
        pretok_run_free(&run);
        pretok_free(&p);
    }
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        pieces(fine[i], text, n);
    }
    json_object_put(list);
    free(text);
}
