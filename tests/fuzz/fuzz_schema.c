/* Fuzz target: bytes up to a NUL are a JSON schema; with one that compiles, the rest steers a walk
 * through its language, and what comes out must be JSON when it ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/grammar_walk.h"
#include "text/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 4096, LONGEST = 2048 };

/* Chooses for each byte of text the next allowed byte from it on; ends where the text may. */
static void steer(grammar_walker *w, const uint8_t *steps, size_t n) {
    static grammar_config place[2][WIDTH];
    static char out[LONGEST];
    size_t used = 0;
    uint32_t width = walker_enter(w, w->program->root, WALK_END, place[0], WIDTH);
    bool accepts = w->accepts;
    while (used < LONGEST && width > 0 && !(accepts && used >= n)) {
        uint8_t first = used < n ? steps[used] : (uint8_t)(used * 37);
        uint32_t next = 0;
        bool is_found = false;
        for (unsigned i = 0; i < 256 && !is_found; i++) {
            uint8_t byte = (uint8_t)(first + i);
            next = walker_step(w, place[used % 2], width, byte, place[1 - used % 2], WIDTH);
            if (w->is_exceeded) {
                return;
            }
            is_found = next > 0 || w->accepts;
            out[used] = (char)byte;
        }
        if (!is_found) {
            abort(); /* a dead end */
        }
        width = next;
        accepts = w->accepts;
        used++;
    }
    smoe_error err;
    struct json_object *value = NULL;
    if (accepts && json_parse(&value, out, used, "text", 0, &err) != SMOE_OK &&
        !strstr(err.text, "nesting") && !strstr(err.text, "NUL inside")) {
        abort();
    }
    json_object_put(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    size_t rest = end ? n + 1 : size;
    smoe_error err;
    grammar g;
    grammar_program p = {0};
    grammar_walker w = {0};
    uint32_t root = 0;
    grammar_init(&g, &err);
    int rc = schema_read(&g, (const char *)data, n, &root);
    rc = rc ? rc : grammar_compile(&p, &g, root, "schema", &err);
    grammar_free(&g);
    rc = rc ? rc : walker_open(&w, &p, &err);
    if (rc == SMOE_OK) {
        steer(&w, data + rest, size - rest);
    }
    walker_close(&w);
    grammar_program_free(&p);
    return 0;
}
