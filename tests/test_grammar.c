/* Grammars: what GBNF means, what is refused and where, and masks against reading every token. */
#include <stdio.h>

#include "base/utf8.h"
#include "grammar_util.h"
#include "model_util.h"
#include "text/mask_impl.h"
#include "text/tokenizer.h"

static smoe_error err;

/* ---- the notation */

static const struct {
    const char *grammar;
    const char *good[8];
    const char *bad[8];
} languages[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno", "Yes", "no "}},
    {"root ::= \"a\"*", {"", "a", "aaaa"}, {"b", "ab"}},
    {"root ::= \"a\"+ \"b\"?", {"a", "aab"}, {"", "b", "abb"}},
    {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa", ""}},
    {"root ::= [ab]{2,}", {"ab", "bbbbb"}, {"a", "", "abc"}},
    {"root ::= [ab]{1,3} # up to three\n", {"a", "ba", "bbb"}, {"", "aaaa"}},
    {"root ::= (\"a\" | \"b\" \"c\")* \"d\"", {"d", "abcad", "bcd"}, {"bd", "a", "add"}},
    {"root ::= [^a-c\\n]", {"d", "é", "😀", "\t"}, {"a", "b", "\n", "", "dd"}},
    {"root ::= .", {"a", "\n", "é", "日", "😀"}, {"", "ab", "\x80", "\xc3", "\xed\xa0\x80"}},
    {"root ::= [α-ω]+ \"é\"", {"αé", "λωé"}, {"é", "aé", "α"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", {"Aé😀\t\"\\"}, {"A", ""}},
    {"root ::= [\\]\\[\\\\\\-a]+", {"]", "[", "\\-a"}, {"b", ""}},
    {"root ::= [a-]+", {"a-", "-"}, {"b"}},
    {"root ::= \"\"", {""}, {"a"}},
    {"root ::= ws \"x\" ws\nws ::= | \" \" ws", {"x", "  x ", " x"}, {" ", "xx"}},
    {"root ::= item | item \",\" root\nitem ::= [0-9]+", {"1", "1,22,3"}, {",", "1,", ""}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "x)", "()", "((x)"}},
    {"root ::= \"(\" root? \")\" root?", {"()", "(())()", "()()"}, {"(", "())", ")("}},
    {"# first\nroot ::=\n  a |\n  b\na ::= (\n  \"1\"\n  \"2\" )\nb-2 ::= \"q\"\nb ::= b-2{2}",
     {"12", "qq"},
     {"1", "q", ""}},
    /* ambiguous, and both sides of a call differ */
    {"root ::= a \"x\" | a \"y\" | b \"z\"\na ::= \"1\" a | \"1\"\nb ::= \"1\"+ | \"1\" b",
     {"1x", "11y", "111z"},
     {"1", "x", "1xy"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [a-z] | \"(\" e \")\"",
     {"a", "(a+b)+c", "((a))"},
     {"a+", "()", "a+b)"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"", {"x", "aaxbc", "axc"}, {"axd", "ax"}},
    {"root ::= ((\"a\"?)*)* \"b\"", {"b", "aab"}, {"a", ""}},
    {"root ::= \"ab\" | \"a\" dead\ndead ::= \"c\" dead", {"ab"}, {"a", "ac", "acc"}},
    {"root ::= (\"a\"{0,2} \"b\"){2,3}", {"bb", "aabab", "bbb"}, {"b", "aaabb", "bbbb"}},
    {"root ::= x{0}\nx ::= \"q\"", {""}, {"q"}},
};

TEST(gbnf_reads_languages) {
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        machine m;
        CHECK_OK(machine_open(&m, gbnf_read, languages[i].grammar, &err));
        for (int k = 0; k < 8 && languages[i].good[k]; k++) {
            if (!machine_accepts(&m, languages[i].good[k])) {
                FAIL("%s refuses \"%s\"", languages[i].grammar, languages[i].good[k]);
            }
        }
        for (int k = 0; k < 8 && languages[i].bad[k]; k++) {
            if (machine_accepts(&m, languages[i].bad[k])) {
                FAIL("%s accepts \"%s\"", languages[i].grammar, languages[i].bad[k]);
            }
        }
        machine_close(&m);
    }
}

static const struct {
    const char *grammar;
    const char *error;
} mistakes[] = {
    {"", "no rule \"root\""},
    {"a ::= \"b\"", "no rule \"root\""},
    {"root ::= a\n\nb ::= \"c\"", "line 1: rule \"a\" is not defined"},
    {"root ::= \"a", "line 1, column 10: this string has no closing quote"},
    {"root ::= \"é\" [a", "line 1, column 14: this class has no closing ]"},
    {"root ::= []", "column 10: this class is empty"},
    {"root ::= [z-a]", "column 11: this range ends before it begins"},
    {"root ::= \"x\"\nb ::= (\"a\"\n", "line 2, column 7: this group has no closing"},
    {"root ::= \"a\")", "line 1, column 13: unexpected \")\""},
    {"root ::= *", "nothing stands before"},
    {"root ::= \"a\"{2,1}", "maximum is below"},
    {"root ::= \"a\"{x}", "must be {m}"},
    {"root ::= \"a\"{1", "must be {m}"},
    {"root ::= \"a\"{1000000}", "above the limit of 100000"},
    {"root ::= \"\\q\"", "unknown escape"},
    {"root ::= \"\\x4\"", "needs 2 hexadecimal digits"},
    {"root ::= \"\\ud800\"", "U+D800 is no character"},
    {"root ::= \"\\U00110000\"", "U+110000 is no character"},
    {"root = \"a\"", "line 1, column 6: expected ::="},
    {"root ::= \"a\"\n?", "line 2, column 1: a rule must begin here"},
    {"root ::= \"a\"\nroot ::= \"b\"",
     "line 2, column 1: rule \"root\" is defined twice, first in line 1"},
    {"root ::= <think>", "not supported"},
    {"root ::= é", "unexpected \"é\""},
    {"root ::= root \"a\" | \"b\"", "line 1: rule \"root\" begins with itself (root -> root)"},
    {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a | \"y\"",
     "line 2: rule \"a\" begins with itself (a -> c -> a)"},
    {"root ::= (\"x\"* root)+", "begins with itself"},
    {"root ::= \"a\" root", "no finite text"},
    {"root ::= ((\"a\"{1000}){1000}){1000}", "smaller repetitions"},
    {"root ::= (((\"\"{9999}){9999}){9999}){9999}", ""}, /* no hang, whatever it says */
    {"root ::= (\"a\" | \"b\")* \"a\" [ab]{24}", "states"},
};

TEST(gbnf_names_mistakes) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        machine m;
        int rc = machine_open(&m, gbnf_read, mistakes[i].grammar, &err);
        if (!*mistakes[i].error) {
            if (rc == SMOE_OK) {
                machine_close(&m);
            }
            continue;
        }
        if (rc == SMOE_OK) {
            FAIL("%s is taken", mistakes[i].grammar);
        }
        CHECK_HAS(err.text, mistakes[i].error);
    }
    machine m;
    CHECK_ERR(machine_open(&m, gbnf_read, "root ::= \"\xff\"", &err), SMOE_ERR_FORMAT);
    CHECK_HAS(err.text, "not UTF-8");
    char deep[600] = "root ::= ";
    memset(deep + 9, '(', 300);
    CHECK(machine_open(&m, gbnf_read, deep, &err) != SMOE_OK);
    CHECK_HAS(err.text, "nested deeper");
}

TEST(gbnf_classes_are_sets_of_characters) {
    for (int round = 0; round < 60; round++) {
        char text[512];
        uint32_t range[6][2];
        int n = 1 + (int)(test_rand() % 6);
        bool invert = test_rand() % 2;
        size_t used = (size_t)snprintf(text, sizeof text, "root ::= [%s", invert ? "^" : "");
        for (int i = 0; i < n; i++) {
            static const uint32_t edges[] = {0x7f,   0x80,    0x7ff,    0x800, 0xd7ff, 0xe000,
                                             0xffff, 0x10000, 0x10ffff, 0xfff, 0x1000, 0x3ffff};
            for (int k = 0; k < 2; k++) {
                uint32_t cp =
                    test_rand() % 2 ? edges[test_rand() % 12] : (uint32_t)(test_rand() % 0x110000);
                range[i][k] = cp >= 0xd800 && cp <= 0xdfff ? 'x' : cp;
            }
            if (range[i][0] > range[i][1]) {
                uint32_t swap = range[i][0];
                range[i][0] = range[i][1];
                range[i][1] = swap;
            }
            used += (size_t)snprintf(text + used, sizeof text - used, "\\U%08x-\\U%08x",
                                     range[i][0], range[i][1]);
        }
        snprintf(text + used, sizeof text - used, "]");
        machine m;
        int rc = machine_open(&m, gbnf_read, text, &err);
        if (rc != SMOE_OK) {
            CHECK_HAS(err.text, "no finite text"); /* the inverse of everything */
            continue;
        }
        for (int k = 0; k < 300; k++) {
            uint32_t cp = (uint32_t)(test_rand() % 0x110000);
            if (k < 60) {
                cp = range[k % n][k / 6 % 2] + (uint32_t)(k / 12) - 2;
            }
            if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
                continue;
            }
            bool want = invert;
            for (int i = 0; i < n; i++) {
                want = cp >= range[i][0] && cp <= range[i][1] ? !invert : want;
            }
            uint8_t utf8[4];
            size_t bytes = utf8_encode(cp, utf8);
            bool is_whole;
            CHECK(machine_reads(&m, (char *)utf8, bytes, &is_whole) == want);
            CHECK(is_whole == want);
            if (want) { /* what is cut off can go on, and has not ended */
                CHECK(machine_reads(&m, (char *)utf8, bytes - 1, &is_whole) && !is_whole);
            }
        }
        machine_close(&m);
    }
}

/* ---- masks */

/* Appends a random expression. Rules are named r0 to r4. */
static size_t write_expression(char *out, size_t cap, int depth) {
    static const char *const atoms[] = {"\"a\"",
                                        "\"the\"",
                                        "\" \"",
                                        "[a-f]",
                                        "[^\\\"\\\\<>]",
                                        "[^a-m]",
                                        "\"\\\"\"",
                                        "[ -~]",
                                        "\"ing\"",
                                        "[0-9]",
                                        "[\\x80-\\U0010ffff]",
                                        ".",
                                        "\"{\\\"\"",
                                        "\"é\"",
                                        "[^\\n]",
                                        "\"th\"",
                                        "[a-zA-Z ]",
                                        "\"\"",
                                        "[^\\\"\\\\\\x00-\\x1f]"};
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{0,3}", "{1,9}", "{3,}"};
    size_t n = 0;
    int kind = depth > 3 ? 0 : (int)(test_rand() % 8);
    if (kind < 3) {
        return (size_t)snprintf(out, cap, "%s ",
                                atoms[test_rand() % (sizeof atoms / sizeof *atoms)]);
    }
    if (kind == 3) {
        return (size_t)snprintf(out, cap, "\".\" r%d ", (int)(test_rand() % 5));
    }
    n += (size_t)snprintf(out, cap, "(");
    int parts = 1 + (int)(test_rand() % 3);
    for (int i = 0; i < parts && n + 400 < cap; i++) {
        n += write_expression(out + n, cap - n, depth + 1);
        if (i + 1 < parts && kind > 5) {
            n += (size_t)snprintf(out + n, cap - n, "| ");
        }
    }
    n += (size_t)snprintf(out + n, cap - n, ")%s ",
                          kind == 4 ? repeats[test_rand() % (sizeof repeats / sizeof *repeats)]
                                    : "");
    return n;
}

static void random_grammar(char *out, size_t cap) {
    size_t n = (size_t)snprintf(out, cap, "root ::= r0 [^q]* r1 r2? | r3 \"x\"* r0\n");
    for (int rule = 0; rule < 5; rule++) {
        n += (size_t)snprintf(out + n, cap - n, "r%d ::= ", rule);
        n += write_expression(out + n, cap / 6, 0);
        /* a way out, so that the rule has finite texts */
        n += (size_t)snprintf(out + n, cap - n, "| [a-d] %s\n",
                              rule % 2 ? "| \"(\" r1 \")\" | \"[\" r3 \"]\" " : "");
    }
}

/* Follows random tokens and compares each mask. */
static void check_masks_of(const smoe_tokenizer *t, smoe_constraint *c, machine *m,
                           const char *text, int steps) {
    size_t n_id = smoe_tokenizer_size(t);
    static uint64_t fast[128], slow[128];
    byte_buf out = {.max_bytes = 1 << 20};
    constraint_run *run;
    CHECK(mask_words(n_id) <= 128);
    CHECK_OK(constraint_start(&run, c, &err));
    for (int i = 0; i < steps; i++) {
        bool has_any;
        size_t n;
        bool is_whole;
        memset(fast, 0xa5, sizeof fast);
        CHECK_OK(constraint_mask(run, fast, n_id, &has_any, &err));
        slow_mask(m, t, out.data ? out.data : "", out.bytes, slow);
        for (size_t id = 0; id < n_id; id++) {
            if (mask_has(fast, (int32_t)id) != mask_has(slow, (int32_t)id)) {
                const char *token = tokenizer_token_bytes(t, (int32_t)id, &n);
                FAIL("%s: after \"%s\" token \"%.*s\" is %s", text, out.data ? out.data : "",
                     (int)n, token, mask_has(fast, (int32_t)id) ? "allowed" : "forbidden");
            }
        }
        CHECK(machine_reads(m, out.data ? out.data : "", out.bytes, &is_whole));
        CHECK(is_whole == constraint_may_end(run));
        int32_t id = random_bit(fast, n_id);
        CHECK(has_any == (id >= 0));
        if (id < 0) {
            break;
        }
        const char *token = tokenizer_token_bytes(t, id, &n);
        CHECK_OK(buf_append(&out, token, n, &err));
        CHECK_OK(constraint_take(run, id, &err));
    }
    constraint_stop(run);
    buf_free(&out);
}

static void check_masks(smoe_constraint *c, machine *m, const char *text, int steps) {
    check_masks_of(small_tokenizer(), c, m, text, steps);
}

TEST(masks_equal_reading_every_token) {
    int rounds = test_thorough() ? 2000 : test_is_slow() ? 3 : 14;
    static char text[8192];
    int n_done = 0;
    for (int round = 0; round < rounds; round++) {
        machine m;
        smoe_constraint *c;
        random_grammar(text, sizeof text);
        int rc = machine_open(&m, gbnf_read, text, &err);
        if (rc != SMOE_OK) { /* now and then one is too large */
            CHECK_INT(rc, SMOE_ERR_UNSUPPORTED);
            continue;
        }
        CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, strlen(text), &err));
        for (int k = 0; k < 2; k++) {
            check_masks(c, &m, text, 6);
        }
        /* with hardly any cache, and with none */
        c->cache.cap_list = round % 2 ? 0 : c->cache.n_list + 40;
        check_masks(c, &m, text, 6);
        smoe_constraint_close(c);
        machine_close(&m);
        n_done++;
    }
    CHECK(n_done > rounds / 2);
}

/* A vocabulary with tokens around the lengths at which masks are put together differently. */
static smoe_tokenizer *tokenizer_of_long_tokens(void) {
    static const int lengths[] = {1,  2,  3,  5,  9,   16,  30,  31,  32,  33,
                                  34, 40, 64, 99, 126, 127, 128, 129, 130, 150};
    /* before, repeated, after; in the byte alphabet: U+0120 is a blank, U+010A a newline, U+00C3
     * U+00A9 stand for an e with acute */
    static const char *const forms[][3] = {{"", "a", ""},  {"", "a", "<"},  {"\\\"", "b", ""},
                                           {"", "Ġ", "Ċ"}, {"", "Ã©", ""},  {"", "Ã©", "\\\""},
                                           {"", "b", "Ã"}, {"©", "a", "Ċ"}, {"<", "x", "Ċ<"},
                                           {"", "Ċ", ""},  {"", "\\\"", ""}};
    byte_buf json = {.max_bytes = 1 << 20};
    int id = 0;
    CHECK_OK(buf_printf(&json, &err,
                        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                        "\"merges\":[],\"vocab\":{"));
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            CHECK_OK(buf_printf(&json, &err, "%s\"%s", id ? "," : "", forms[f][0]));
            for (int k = 0; k < lengths[i]; k++) {
                CHECK_OK(buf_printf(&json, &err, "%s", forms[f][1]));
            }
            CHECK_OK(buf_printf(&json, &err, "%s\":%d", forms[f][2], id++));
        }
    }
    CHECK_OK(buf_printf(&json, &err, "}}}"));
    smoe_tokenizer *t;
    text_assets assets = {.label = (char[]){"long"}, .tokenizer_json = {json.data, json.bytes}};
    CHECK_OK(tokenizer_build(&t, &assets, &err));
    buf_free(&json);
    return t;
}

TEST(masks_of_long_tokens_in_counted_runs) {
    static const char *const texts[] = {
        "root ::= line+\nline ::= [^\\n<>]{1,200} \"\\n\"",
        "root ::= \"x\"? [^\\n]{0,70} (\"<\" [a-é]{3,40} \"\\n\")* \"a\"",
        "root ::= s\ns ::= \"\\\"\" [^\\\"\\\\]{0,90} \"\\\"\" s? | [a-b]{33} \"<\" s",
        "root ::= ([^<]{50} \"<\"){2,5} [a-b\\\"]{0,140} [^\\n]* \"\\n\"",
        "root ::= r{1,60}\nr ::= [^<\\n]{2} | \"<\"",
    };
    smoe_tokenizer *t = tokenizer_of_long_tokens();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        machine m;
        smoe_constraint *c;
        CHECK_OK(machine_open(&m, gbnf_read, texts[i], &err));
        CHECK_OK(smoe_constraint_open_gbnf(&c, t, texts[i], strlen(texts[i]), &err));
        CHECK(c->rest_long.n_id > 0 && c->rest.max_depth == MASK_REST_BYTES);
        for (int k = 0; k < (test_is_slow() ? 2 : 8); k++) {
            check_masks_of(t, c, &m, texts[i], 25);
        }
        smoe_constraint_close(c);
        machine_close(&m);
    }
    smoe_tokenizer_close(t);
}

TEST(masks_of_nested_texts) {
    static const char text[] =
        "root ::= value\nvalue ::= \"[\" (value (\",\" \" \"? value)*)? \"]\" | "
        "\"{\" (str \":\" value (\",\" str \":\" value)*)? \"}\" | str | [0-9]{1,5}\n"
        "str ::= \"\\\"\" [^\\\"\\\\]{0,20} \"\\\"\"";
    machine m;
    smoe_constraint *c;
    CHECK_OK(machine_open(&m, gbnf_read, text, &err));
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, sizeof text - 1, &err));
    for (int k = 0; k < 6; k++) {
        check_masks(c, &m, text, test_is_slow() ? 20 : 60);
    }
    smoe_constraint_close(c);
    machine_close(&m);
}

TEST(control_tokens_are_never_allowed) {
    const smoe_tokenizer *t = small_tokenizer();
    static const char text[] = "root ::= .*";
    size_t n_id = smoe_tokenizer_size(t);
    uint64_t mask[128];
    smoe_constraint *c;
    constraint_run *run;
    bool has_any;
    size_t n;
    CHECK_OK(smoe_constraint_open_gbnf(&c, t, text, sizeof text - 1, &err));
    CHECK_OK(constraint_start(&run, c, &err));
    CHECK_OK(constraint_mask(run, mask, n_id, &has_any, &err));
    int n_control = 0;
    for (size_t id = 0; id < n_id; id++) {
        bool is_text = tokenizer_token_bytes(t, (int32_t)id, &n) != NULL;
        n_control += tokenizer_is_special(t, (int32_t)id);
        CHECK(is_text || !mask_has(mask, (int32_t)id));
        CHECK(is_text || constraint_take(run, (int32_t)id, &err) == SMOE_ERR_ARGUMENT);
    }
    CHECK(n_control > 0);
    CHECK_ERR(constraint_take(run, -1, &err), SMOE_ERR_ARGUMENT);
    CHECK_ERR(constraint_take(run, (int32_t)n_id, &err), SMOE_ERR_ARGUMENT);
    /* a model may have fewer ids, or more */
    memset(mask, 0xff, sizeof mask);
    CHECK_OK(constraint_mask(run, mask, 70, &has_any, &err));
    CHECK(mask[1] >> 6 == 0 && mask[2] == UINT64_MAX);
    CHECK_OK(constraint_mask(run, mask, n_id + 500, &has_any, &err));
    for (size_t id = n_id; id < n_id + 500; id++) {
        CHECK(!mask_has(mask, (int32_t)id));
    }
    constraint_stop(run);
    smoe_constraint_close(c);
}

TEST(what_is_refused_changes_nothing) {
    static const char text[] = "root ::= \"(\" root \")\" | \"ab\"";
    smoe_constraint *c;
    constraint_run *run;
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, sizeof text - 1, &err));
    CHECK_OK(constraint_start(&run, c, &err));
    CHECK_OK(constraint_take_bytes(run, "((a", 3, &err));
    CHECK_ERR(constraint_take_bytes(run, "b))x", 4, &err), SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "byte 3 of 4");
    CHECK(!constraint_may_end(run));
    CHECK_OK(constraint_take_bytes(run, "b)", 2, &err));
    CHECK_OK(constraint_take_bytes(run, "", 0, &err));
    CHECK(!constraint_must_end(run));
    CHECK_OK(constraint_take_bytes(run, ")", 1, &err));
    CHECK(constraint_may_end(run) && constraint_must_end(run));
    constraint_stop(run);
    smoe_constraint_close(c);
}

TEST(long_texts_stay_in_bounds) {
    static const char text[] =
        "root ::= item root | item\n"
        "item ::= [a-y] | \"(\" root \")\" | \"<\" item \">\" | \"<\" item \"]\"";
    smoe_constraint *c;
    constraint_run *run;
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, sizeof text - 1, &err));
    CHECK_OK(constraint_start(&run, c, &err));
    for (int i = 0; i < 40000; i++) {
        CHECK_OK(
            constraint_take_bytes(run, i % 2 ? "b(a(c))" : "<(a<x]cd)>", i % 2 ? 7 : 10, &err));
    }
    CHECK(constraint_may_end(run));
    /* nesting has a limit, which is an error and leaves the text as it was */
    int depth = 0;
    while (constraint_take_bytes(run, "(", 1, &err) == SMOE_OK) {
        depth++;
    }
    CHECK(depth > 10000);
    CHECK_HAS(err.text, "nested too deep");
    CHECK_ERR(constraint_take_bytes(run, ">", 1, &err), SMOE_ERR_ARGUMENT);
    constraint_stop(run);
    smoe_constraint_close(c);
}

TEST(masks_do_not_allocate) {
    const smoe_tokenizer *t = small_tokenizer();
    static const char text[] = "root ::= \"{\" str (\",\" str)* \"}\" | root2\n"
                               "root2 ::= [a-z ]* | \"\\\"\" root2\n"
                               "str ::= \"\\\"\" [^\\\"\\\\]* \"\\\"\"";
    uint64_t mask[128];
    smoe_constraint *c;
    constraint_run *run;
    size_t n_id = smoe_tokenizer_size(t);
    CHECK_OK(smoe_constraint_open_gbnf(&c, t, text, sizeof text - 1, &err));
    CHECK_OK(constraint_start(&run, c, &err));
    alloc_guard_forbid(true);
    for (int i = 0; i < 40; i++) {
        bool has_any;
        CHECK_OK(constraint_mask(run, mask, n_id, &has_any, &err));
        if (!has_any) {
            break;
        }
        CHECK_OK(constraint_take(run, random_bit(mask, n_id), &err));
    }
    alloc_guard_forbid(false);
    CHECK_INT(alloc_guard_violations(), 0);
    CHECK(smoe_constraint_bytes(c) > 0 && smoe_constraint_bytes(c) < 20 << 20);
    constraint_stop(run);
    smoe_constraint_close(c);
}

TEST(constraints_survive_each_failed_allocation) {
    const smoe_tokenizer *t = small_tokenizer();
    static const char text[] = "root ::= \"a\" b{2,5} | [^x-z]\nb ::= (\"c\" | \"d\" root)+";
    if (!alloc_guard_active()) {
        SKIP("no allocation guard");
    }
    for (uint64_t n = 1;; n++) {
        smoe_constraint *c = NULL;
        constraint_run *run = NULL;
        alloc_guard_fail_at(n);
        int rc = smoe_constraint_open_gbnf(&c, t, text, sizeof text - 1, &err);
        rc = rc ? rc : constraint_start(&run, c, &err);
        bool failed = alloc_guard_has_failed();
        alloc_guard_fail_at(0);
        constraint_stop(run);
        smoe_constraint_close(c);
        if (!failed) {
            CHECK_INT(rc, SMOE_OK);
            CHECK(n > 20);
            return;
        }
        CHECK_INT(rc, SMOE_ERR_MEMORY);
    }
}

/* ---- generation */

static const int32_t PROMPT[] = {3138, 625, 258, 535, 450, 308, 258};
enum { N_PROMPT = sizeof PROMPT / sizeof *PROMPT };

/* The ids generated; malloc'ed. */
static int32_t *generated(opened *o, const smoe_constraint *c, float temperature, int32_t max_tok,
                          size_t *n, smoe_finish *finish) {
    int32_t *ids = NULL;
    smoe_generate_options g = {
        .sampling = smoe_model_sampling(o->model), .max_tok = max_tok, .constraint = c};
    g.sampling.temperature = temperature;
    g.sampling.seed = 11;
    CHECK_OK(smoe_generate(o->session, PROMPT, N_PROMPT, &g, &ids, n, finish, &err));
    return ids;
}

TEST(generation_without_limits_is_the_same) {
    smoe_model_options options = {.n_thread = 1, .context_tok = 128};
    static const char text[] = "root ::= .*";
    opened o = open_with(test_model("tales-8m"), &options);
    smoe_constraint *c;
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, sizeof text - 1, &err));
    for (int i = 0; i < 2; i++) {
        float temperature = i ? 0.8f : 0;
        size_t n_free;
        size_t n_bound;
        smoe_finish finish[2];
        int32_t *free_ids = generated(&o, NULL, temperature, 60, &n_free, &finish[0]);
        int32_t *bound_ids = generated(&o, c, temperature, 60, &n_bound, &finish[1]);
        CHECK_INT(n_bound, n_free);
        CHECK_INT(finish[1], finish[0]);
        CHECK(memcmp(free_ids, bound_ids, n_free * sizeof *free_ids) == 0);
        smoe_free(free_ids);
        smoe_free(bound_ids);
    }
    smoe_constraint_close(c);
    close_opened(&o);
}

TEST(generation_ends_where_the_grammar_does) {
    smoe_model_options options = {.n_thread = 1, .context_tok = 128};
    static const char text[] = "root ::= \" yes\" | \" no\"";
    static const char more[] = "root ::= [a-z ]* \".\"?";
    static const char nothing[] = "root ::= \"\"";
    opened o = open_with(test_model("tales-8m"), &options);
    smoe_constraint *c;
    size_t n;
    size_t bytes;
    smoe_finish finish;
    char *out;
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), text, sizeof text - 1, &err));
    int32_t *ids = generated(&o, c, 1, -1, &n, &finish);
    CHECK_INT(finish, SMOE_FINISH_END);
    CHECK_OK(smoe_detokenize(small_tokenizer(), ids, n, true, &out, &bytes, &err));
    CHECK(strcmp(out, " yes") == 0 || strcmp(out, " no") == 0);
    smoe_free(out);
    smoe_free(ids);
    smoe_generate_options g = {.sampling = smoe_model_sampling(o.model),
                               .max_tok = 5,
                               .ignore_end = true,
                               .constraint = c};
    CHECK_ERR(smoe_generate(o.session, PROMPT, N_PROMPT, &g, &ids, &n, &finish, &err),
              SMOE_ERR_ARGUMENT);
    CHECK_HAS(err.text, "ignore_end");
    smoe_constraint_close(c);
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), nothing, sizeof nothing - 1, &err));
    ids = generated(&o, c, 1, -1, &n, &finish);
    CHECK_INT(n, 0);
    CHECK_INT(finish, SMOE_FINISH_END);
    smoe_free(ids);
    smoe_constraint_close(c);
    CHECK_OK(smoe_constraint_open_gbnf(&c, small_tokenizer(), more, sizeof more - 1, &err));
    ids = generated(&o, c, 1.5f, 40, &n, &finish);
    CHECK_OK(smoe_detokenize(small_tokenizer(), ids, n, true, &out, &bytes, &err));
    CHECK_INT(strspn(out, "abcdefghijklmnopqrstuvwxyz ."), bytes);
    smoe_free(out);
    smoe_free(ids);
    smoe_constraint_close(c);
    close_opened(&o);
}

TEST(cli_run_takes_grammars) {
    test_write_file(test_path("g.gbnf"), "root ::= \"<\" [a-f]{3} \">\"", 25);
    test_run r = test_smoe("run", "models/tales-8m", "-q", "-f", test_path("g.gbnf"), "--grammar",
                           test_path("g.gbnf"), "--temp", "2", NULL);
    CHECK_INT(r.status, 0);
    CHECK_INT(strlen(r.out), 6);
    CHECK(r.out[0] == '<' && r.out[4] == '>' && strspn(r.out + 1, "abcdef") == 3);
    test_write_file(test_path("g.gbnf"), "root ::= \"<\" oops", 17);
    r = test_smoe("run", "models/tales-8m", "-q", "-p", "x", "--grammar", test_path("g.gbnf"),
                  NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "line 1: rule \"oops\" is not defined");
    r = test_smoe("run", "models/tales-8m", "-q", "-p", "x", "--grammar", test_path("no"), NULL);
    CHECK_INT(r.status, 1);
    r = test_smoe("run", "models/tales-8m", "-q", "-p", "x", "--grammar", test_path("g.gbnf"),
                  "--json-schema", "true", NULL);
    CHECK_INT(r.status, 1);
    CHECK_HAS(r.err, "not both");
}
