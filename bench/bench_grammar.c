/* Token masks: what one costs while random allowed tokens are taken, in the median, the 90th
 * percentile and the worst case, for a fresh constraint and once its cache is warm.
 *
 * smoe-bench grammar [TOKENIZER_FOLDER]: default is the published tokenizer of Qwen3
 * (scripts/fetch-tokenizers.sh), else the bundled model's.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "text/mask.h"
#include "text/tokenizer.h"

enum { STEPS = 4000, STEPS_OF_TEXT = 250 };

static const struct {
    const char *name;
    const char *gbnf;
    const char *schema;
} cases[] = {
    {"any JSON", NULL, "{\"type\":\"object\"}"},
    {"tool call", NULL,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},\"arguments\":"
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"unit\":{\"enum\":"
     "[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
     "\"required\":[\"city\"]}},\"required\":[\"name\",\"arguments\"]}"},
    {"records", NULL,
     "{\"type\":\"array\",\"minItems\":5,\"items\":{\"type\":\"object\",\"properties\":{\"id\":"
     "{\"type\":\"string\",\"format\":\"uuid\"},\"born\":{\"type\":\"string\",\"format\":\"date\"},"
     "\"note\":{\"type\":\"string\",\"maxLength\":200},\"tags\":{\"type\":\"array\",\"items\":"
     "{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9_-]{0,30}$\"}},\"score\":{\"type\":"
     "\"number\","
     "\"minimum\":0,\"maximum\":1}},\"required\":[\"id\",\"born\",\"note\",\"tags\"]}}"},
    {"prose, GBNF", "root ::= line+\nline ::= [^\\n<>]{1,200} \"\\n\"", NULL},
    {"lists, GBNF",
     "root ::= item+\nitem ::= \"- \" word (\" \" word)* \"\\n\"\nword ::= [a-z]+ | \"(\" word "
     "\")\"",
     NULL},
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A random set bit, found from a random place on. */
static int32_t choose(const uint64_t *mask, size_t n_id, uint32_t *state) {
    size_t at = next_random(state) % n_id;
    for (size_t i = 0; i < n_id; i++, at = at + 1 == n_id ? 0 : at + 1) {
        if (mask_has(mask, (int32_t)at)) {
            return (int32_t)at;
        }
    }
    return -1;
}

/* Quotes and brackets come more often than by chance, as they do in texts. */
static int32_t choose_token(const smoe_tokenizer *t, const uint64_t *mask, size_t n_id,
                            uint32_t *state) {
    static const char *const closing[] = {"\"", "}", "]", "\n"};
    if (next_random(state) % 4 == 0) {
        int32_t id = tokenizer_id(t, closing[next_random(state) % 4], 1);
        if (id >= 0 && mask_has(mask, id)) {
            return id;
        }
    }
    return choose(mask, n_id, state);
}

static int walk(const smoe_constraint *c, const smoe_tokenizer *t, double *us, int steps,
                smoe_error *err) {
    static uint64_t mask[1 << 15];
    size_t n_id = smoe_tokenizer_size(t);
    uint32_t state = 7;
    constraint_run *run = NULL;
    int rc = SMOE_OK;
    for (int i = 0; i < steps && rc == SMOE_OK; i++) {
        bool has_any = false;
        if (i % STEPS_OF_TEXT == 0) {
            constraint_stop(run);
            run = NULL;
            rc = constraint_start(&run, c, err);
        }
        uint64_t start = now_ns();
        rc = rc ? rc : constraint_mask(run, mask, n_id, &has_any, err);
        us[i] = (double)(now_ns() - start) / 1e3;
        if (rc == SMOE_OK && has_any) {
            rc = constraint_take(run, choose_token(t, mask, n_id, &state), err);
        } else if (rc == SMOE_OK) {
            constraint_stop(run);
            run = NULL;
            rc = constraint_start(&run, c, err);
        }
    }
    constraint_stop(run);
    qsort(us, (size_t)steps, sizeof *us, compare);
    return rc;
}

static int bench_one(size_t index, const smoe_tokenizer *t, smoe_error *err) {
    static double us[STEPS];
    smoe_constraint *c;
    const char *text = cases[index].gbnf ? cases[index].gbnf : cases[index].schema;
    uint64_t start = now_ns();
    int rc = cases[index].gbnf ? smoe_constraint_open_gbnf(&c, t, text, strlen(text), err)
                               : smoe_constraint_open_schema(&c, t, text, strlen(text), err);
    if (rc != SMOE_OK) {
        return rc;
    }
    printf("%-12s %6.1f ms  %5.1f MiB", cases[index].name, (double)(now_ns() - start) / 1e6,
           (double)smoe_constraint_bytes(c) / (1 << 20));
    for (int warm = 0; warm < 2 && rc == SMOE_OK; warm++) {
        int steps = warm ? STEPS : STEPS_OF_TEXT;
        rc = walk(c, t, us, steps, err);
        printf("   %6.2f %7.2f %8.1f", us[steps / 2], us[steps * 9 / 10], us[steps - 1]);
    }
    printf("\n");
    smoe_constraint_close(c);
    return rc;
}

static const char *default_tokenizer(void) {
    static char path[1024];
    struct stat st;
    const char *cache = getenv("SMOE_CACHE");
    snprintf(path, sizeof path, "%s/tokenizers/qwen3", cache ? cache : ".cache");
    return stat(path, &st) == 0 ? path : "models/tales-8m";
}

int bench_grammar(int argc, char **argv) {
    const char *path = argc > 0 ? argv[0] : default_tokenizer();
    smoe_tokenizer *t;
    smoe_error err;
    int rc = smoe_tokenizer_open(&t, path, &err);
    if (rc == SMOE_OK) {
        printf(
            "%s: %zu tokens; microseconds a mask: median, 90 %%, worst\n%-12s %9s  %9s   %-23s   "
            "%-23s\n",
            path, smoe_tokenizer_size(t), "", "open", "memory", "one fresh text", "warm");
        for (size_t i = 0; i < sizeof cases / sizeof *cases && rc == SMOE_OK; i++) {
            rc = bench_one(i, t, &err);
        }
        smoe_tokenizer_close(t);
    }
    if (rc != SMOE_OK) {
        fprintf(stderr, "smoe-bench grammar: %s\n", err.text);
    }
    return rc ? 1 : 0;
}
