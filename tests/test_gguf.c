/* GGUF files: the reader, split models, every malformed file by its verdict, models against their
 * makers' logits, and vaults made from them. */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "bad_cases.h"
#include "formats/gguf.h"
#include "model/source.h"
#include "model_util.h"

/* ---- malformed files */

static void run_cases(const char *prefix) {
    bad_case *c;
    size_t n = bad_cases(&c, prefix);
    for (size_t i = 0; i < n; i++) {
        char path[256];
        smoe_error err = {0};
        source *s = NULL;
        snprintf(path, sizeof path, "bad/%s", c[i].file);
        int rc = source_open(&s, test_data(path), &err);
        if (getenv("SMOE_TEST_VERBOSE")) {
            printf("%s: %s\n", c[i].file, rc ? err.text : "opens");
        }
        bad_case_check(&c[i], rc, &err);
        CHECK((s == NULL) == (rc != SMOE_OK));
        source_close(s);
    }
    free(c);
}

TEST_LIMIT(bad_gguf_files_end_by_verdict, 10) {
    run_cases("gguf/");
}

TEST_LIMIT(bad_splits_end_by_verdict, 10) {
    run_cases("split/");
}

TEST(ok_gguf_opens) {
    run_cases("ok.gguf");
}
