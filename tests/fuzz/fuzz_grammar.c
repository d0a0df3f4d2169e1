/* Fuzz target: bytes up to a NUL are a GBNF grammar; with one that compiles, the rest is read by
 * its machine, twice: in one go, and with the graph of stacks compacted after each byte. Both must
 * agree. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 4096 };

/* How many bytes are read, plus one when the text may end there. */
static size_t read_all(grammar_walker *w, const uint8_t *text, size_t n, bool compact) {
    static grammar_config place[2][WIDTH];
    uint32_t width = walker_enter(w, w->program->root, WALK_END, place[0], WIDTH);
    size_t i = 0;
    while (i < n && !w->is_exceeded) {
        if (compact) {
            walker_collect(w, place[i % 2], width);
        }
        width = walker_step(w, place[i % 2], width, text[i], place[1 - i % 2], WIDTH);
        i++;
        if (width == 0 && !w->accepts) {
            break;
        }
    }
    return w->is_exceeded ? SIZE_MAX : 2 * i + w->accepts;
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
    int rc = gbnf_read(&g, (const char *)data, n, &root);
    rc = rc ? rc : grammar_compile(&p, &g, root, "grammar", &err);
    grammar_free(&g);
    rc = rc ? rc : walker_open(&w, &p, &err);
    if (rc == SMOE_OK) {
        size_t once = read_all(&w, data + rest, size - rest, false);
        walker_release(&w, WALK_END + 1, 1);
        size_t again = read_all(&w, data + rest, size - rest, true);
        if (once != again && once != SIZE_MAX) {
            abort();
        }
    }
    walker_close(&w);
    grammar_program_free(&p);
    return 0;
}
